#include <limits>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/pointwise/pointwise.h"

namespace rondo::check {
namespace {

void add_forward(Suite& suite, const PointwiseRow& row, DType dtype, int64_t rows, int64_t cols,
                 bool bench) {
  auto function = [=](Case& c) {
    PointwiseArgs args;
    args.function = row.function;
    const int64_t live = rows - rows / 8;  // some spare rows
    args.row_count = c.ints({static_cast<int32_t>(live)});
    args.x = c.input({rows, cols}, dtype, {Fill::uniform, -12, 12});
    if (row.function == PointwiseFunction::add) args.z = c.input({rows, cols}, dtype);
    if (row.function == PointwiseFunction::bias) args.z = c.input({cols}, DType::f32);
    // In place, so that untouched spare rows must stay what they were.
    args.y = c.in_out("y", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
    c.work(0, (row.function == PointwiseFunction::add ? 3.0 : 2.0) * live_bytes(rows, cols, dtype));
    c.run(args);
  };
  const std::string label = str(row.name, "/", name_of(dtype), "/", rows, "x", cols);
  if (bench) {
    suite.add_bench<PointwiseArgs>(label, function);
  } else {
    suite.add<PointwiseArgs>(label, function);
  }
}

void add_backward(Suite& suite, const PointwiseRow& row, DType dtype, int64_t rows, int64_t cols,
                  bool bench = false) {
  auto function = [=](Case& c) {
    PointwiseGradArgs args;
    args.function = row.function;
    // Outputs of activations lie between -1 and 1 where inputs may be of any size.
    const double size = row.saves == PointwiseSaves::input ? 12 : 1;
    args.saved = c.input({rows, cols}, dtype, {Fill::uniform, -size, size});
    args.dy = c.input({rows, cols}, dtype);
    args.dx = c.output("dx", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
    c.work(0, static_cast<double>(args.saved.bytes()) * 3);
    c.run(args);
  };
  const std::string label = str(row.name, "/", name_of(dtype), "/", rows, "x", cols);
  if (bench) {
    suite.add_bench<PointwiseGradArgs>(label, function);
  } else {
    suite.add<PointwiseGradArgs>(label, function);
  }
}

// NaN must come out wherever it went in, or a training run that has gone wrong looks well.
void add_special(Suite& suite, const PointwiseRow& row, DType dtype) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values;  // in every lane of a vector, and in the rest
  for (int i = 0; i < 37; ++i) {
    values.push_back(std::vector{nan, inf, -inf, 0.0, -0.0, 1e30, -1e30}[i % 7]);
  }
  const std::string label = str(row.name, "/", name_of(dtype), "/special values");
  suite.add<PointwiseArgs>(label, [=](Case& c) {
    PointwiseArgs args;
    args.function = row.function;
    args.x = c.input_values({1, 37}, dtype, values);
    if (row.function == PointwiseFunction::add) args.z = c.input({1, 37}, dtype);
    if (row.function == PointwiseFunction::bias) args.z = c.input({37}, DType::f32);
    args.y = c.output("y", {1, 37}, dtype, Tolerance::ulps(dtype, 4));
    c.run(args);
  });
  if (row.operands != 1) return;
  suite.add<PointwiseGradArgs>(label, [=](Case& c) {
    PointwiseGradArgs args;
    args.function = row.function;
    args.saved = c.input_values({1, 37}, dtype, values);
    args.dy = c.input({1, 37}, dtype);
    args.dx = c.output("dx", {1, 37}, dtype, Tolerance::ulps(dtype, 4));
    c.run(args);
  });
}

}  // namespace

void pointwise_cases(Suite& suite) {
  for (const PointwiseRow& row : pointwise_functions) {
    for (DType dtype : {DType::f32, DType::bf16}) add_special(suite, row, dtype);
  }
  for (const PointwiseRow& row : pointwise_functions) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (int64_t rows : {0, 1, 33, 129}) {
        for (int64_t cols : {1, 7, 32, 65, 513}) {
          add_forward(suite, row, dtype, rows, cols, false);
          if (row.operands == 1) add_backward(suite, row, dtype, rows, cols);
        }
      }
    }
    add_forward(suite, row, DType::f32, 4096, 1024, true);
    if (row.operands == 1) add_backward(suite, row, DType::f32, 4096, 1024, true);
  }
}

}  // namespace rondo::check
