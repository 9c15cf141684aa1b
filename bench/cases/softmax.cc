
#include "kernels/softmax/softmax.h"
#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void log_softmax_case(Case& c, LogSoftmaxArgs& args, DType dtype, int64_t rows, int64_t classes) {
  args.row_count = c.live_rows(rows);
  // In place, so that untouched spare rows must stay what they were.
  args.x = args.y =
      c.in_out("y", {rows, classes}, dtype, Tolerance::ulps(dtype, 8), {Fill::uniform, -20, 20});
  c.work(0, 2.0 * live_bytes(rows, classes, dtype));
}

void log_softmax_grad_case(Case& c, LogSoftmaxGradArgs& args, DType dtype, int64_t rows,
                           int64_t classes) {
  args.row_count = c.live_rows(rows);
  args.y = c.input({rows, classes}, dtype, {Fill::uniform, -9, 0});
  // The row's sum of dy may have cancelled: its error is relative to the sum of |dy|.
  const double length = static_cast<double>(classes);
  args.dy = args.dx = c.in_out("dx", {rows, classes}, dtype,
                               {length * 0x1p-24, Tolerance::ulps(dtype, 4).relative});
  c.work(0, 3.0 * live_bytes(rows, classes, dtype));
}

// One NaN, an infinity, nothing but -infinity, and a class masked by -infinity.
void special_rows(Case& c, LogSoftmaxArgs& args) {
  args.x =
      c.input_values({4, 3}, DType::f32,
                     {1, nan, 2, 1, infinity, 2, -infinity, -infinity, -infinity, 1, -infinity, 2});
  args.y = c.output("y", {4, 3}, DType::f32, Tolerance::ulps(DType::f32, 8));
}

}  // namespace

void softmax_cases(Suite& suite) {
  const auto add = [&](DType dtype, int64_t rows, int64_t classes, bool bench = false) {
    const std::string label = str(name_of(dtype), "/", rows, "x", classes);
    suite.add(label, log_softmax_case, dtype, rows, classes).bench = bench;
    suite.add(label, log_softmax_grad_case, dtype, rows, classes).bench = bench;
  };
  for (const auto& [dtype, rows, classes] :
       every(f32_bf16, {0, 1, 33, 65}, {1, 7, 31, 32, 33, 65, 513}))
    add(dtype, rows, classes);
  // Rows that whole blocks of GPU threads share.
  for (const auto& [dtype, classes] : every(f32_bf16, {1101, 2200})) add(dtype, 9, classes);
  suite.add("special values", special_rows);
  add(DType::f32, 65536, 32, true);
  add(DType::f32, 1024, 5000, true);
}

}  // namespace rondo::check
