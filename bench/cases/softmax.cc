#include <limits>

#include "bench/cases/check/check.h"
#include "kernels/softmax/softmax.h"

namespace rondo::check {
namespace {

void log_softmax_case(Case& c, DType dtype, int64_t rows, int64_t classes) {
  LogSoftmaxArgs args;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
  // In place, so that untouched spare rows must stay what they were.
  args.x = args.y =
      c.in_out("y", {rows, classes}, dtype, Tolerance::ulps(dtype, 8), {Fill::uniform, -20, 20});
  c.work(0, 2.0 * live_bytes(rows, classes, dtype));
  c.run(args);
}

void log_softmax_grad_case(Case& c, DType dtype, int64_t rows, int64_t classes) {
  LogSoftmaxGradArgs args;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
  args.y = c.input({rows, classes}, dtype, {Fill::uniform, -9, 0});
  // The row's sum of dy may have cancelled: its error is relative to the sum of |dy|.
  const double length = static_cast<double>(classes);
  args.dy = args.dx = c.in_out("dx", {rows, classes}, dtype,
                               {length * 0x1p-24, Tolerance::ulps(dtype, 4).relative});
  c.work(0, 3.0 * live_bytes(rows, classes, dtype));
  c.run(args);
}

// One NaN, an infinity, nothing but -inf, and a class masked by -inf.
void special_rows(Case& c) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  LogSoftmaxArgs args;
  args.x = c.input_values({4, 3}, DType::f32, {1, nan, 2, 1, inf, 2, -inf, -inf, -inf, 1, -inf, 2});
  args.y = c.output("y", {4, 3}, DType::f32, Tolerance::ulps(DType::f32, 8));
  c.run(args);
}

}  // namespace

void softmax_cases(Suite& suite) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t rows : {0, 1, 33, 65}) {
      for (int64_t classes : {1, 7, 31, 32, 33, 65, 513}) {
        const std::string label = str(name_of(dtype), "/", rows, "x", classes);
        suite.add<LogSoftmaxArgs>(label,
                                  [=](Case& c) { log_softmax_case(c, dtype, rows, classes); });
        suite.add<LogSoftmaxGradArgs>(
            label, [=](Case& c) { log_softmax_grad_case(c, dtype, rows, classes); });
      }
    }
  }
  // Rows that whole blocks of GPU threads share.
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t classes : {1101, 2200}) {
      const std::string label = str(name_of(dtype), "/9x", classes);
      suite.add<LogSoftmaxArgs>(label, [=](Case& c) { log_softmax_case(c, dtype, 9, classes); });
      suite.add<LogSoftmaxGradArgs>(label,
                                    [=](Case& c) { log_softmax_grad_case(c, dtype, 9, classes); });
    }
  }
  suite.add<LogSoftmaxArgs>("special values", special_rows);
  for (int64_t classes : {32, 5000}) {
    const int64_t rows = 1 << 20 >> (classes == 32 ? 4 : 10);
    const std::string label = str("f32/", rows, "x", classes);
    suite.add_bench<LogSoftmaxArgs>(
        label, [=](Case& c) { log_softmax_case(c, DType::f32, rows, classes); });
    suite.add_bench<LogSoftmaxGradArgs>(
        label, [=](Case& c) { log_softmax_grad_case(c, DType::f32, rows, classes); });
  }
}

}  // namespace rondo::check
