#include "kernels/pointwise/pointwise.h"

#include <vector>

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void set_z(Case& c, PointwiseArgs& args, DType dtype, int64_t rows, int64_t cols) {
  if (args.function == PointwiseFunction::add) args.z = c.input({rows, cols}, dtype);
  if (args.function == PointwiseFunction::bias) args.z = c.input({cols}, DType::f32);
}

void forward_case(Case& c, PointwiseArgs& args, PointwiseRow row, DType dtype, int64_t rows,
                  int64_t cols) {
  args.function = row.function;
  args.row_count = c.live_rows(rows);
  args.x = c.input({rows, cols}, dtype, {Fill::uniform, -12, 12});
  set_z(c, args, dtype, rows, cols);
  // In place, so that untouched spare rows must stay what they were.
  args.y = c.in_out("y", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
  c.work(0, (row.function == PointwiseFunction::add ? 3.0 : 2.0) * live_bytes(rows, cols, dtype));
}

void backward_case(Case& c, PointwiseGradArgs& args, PointwiseRow row, DType dtype, int64_t rows,
                   int64_t cols) {
  args.function = row.function;
  // Outputs of activations lie between -1 and 1 where inputs may be of any size.
  const double size = row.saves == PointwiseSaves::input ? 12 : 1;
  args.saved = c.input({rows, cols}, dtype, {Fill::uniform, -size, size});
  args.dy = c.input({rows, cols}, dtype);
  args.dx = c.output("dx", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
  c.work(0, static_cast<double>(args.saved.bytes()) * 3);
}

// NaN must come out wherever it went in, or a training run that has gone wrong looks well.
TensorView special_input(Case& c, DType dtype) {
  std::vector<double> values;  // in every lane of a vector, and in the rest
  for (int i = 0; i < 37; ++i) {
    values.push_back(std::vector{nan, infinity, -infinity, 0.0, -0.0, 1e30, -1e30}[i % 7]);
  }
  return c.input_values({1, 37}, dtype, values);
}

void special_forward(Case& c, PointwiseArgs& args, PointwiseRow row, DType dtype) {
  args.function = row.function;
  args.x = special_input(c, dtype);
  set_z(c, args, dtype, 1, 37);
  args.y = c.output("y", {1, 37}, dtype, Tolerance::ulps(dtype, 4));
}

void special_backward(Case& c, PointwiseGradArgs& args, PointwiseRow row, DType dtype) {
  args.function = row.function;
  args.saved = special_input(c, dtype);
  args.dy = c.input({1, 37}, dtype);
  args.dx = c.output("dx", {1, 37}, dtype, Tolerance::ulps(dtype, 4));
}

}  // namespace

void pointwise_cases(Suite& suite) {
  const auto add = [&](const PointwiseRow& row, DType dtype, int64_t rows, int64_t cols,
                       bool bench) {
    const std::string label = str(row.name, "/", name_of(dtype), "/", rows, "x", cols);
    suite.add(label, forward_case, row, dtype, rows, cols).bench = bench;
    if (row.operands != 1) return;
    suite.add(label, backward_case, row, dtype, rows, cols).bench = bench;
  };
  for (const PointwiseRow& row : pointwise_functions) {
    for (DType dtype : f32_bf16) {
      const std::string label = str(row.name, "/", name_of(dtype), "/special values");
      suite.add(label, special_forward, row, dtype);
      if (row.operands == 1) suite.add(label, special_backward, row, dtype);
    }
  }
  for (const PointwiseRow& row : pointwise_functions) {
    for (const auto& [dtype, rows, cols] : every(f32_bf16, {0, 1, 33, 129}, {1, 7, 32, 65, 513}))
      add(row, dtype, rows, cols, false);
    add(row, DType::f32, 4096, 1024, true);
  }
}

}  // namespace rondo::check
