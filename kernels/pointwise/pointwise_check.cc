#include <limits>
#include <vector>

#include "kernels/check/suites.h"
#include "kernels/pointwise/pointwise.h"

namespace rondo::check {
namespace {

constexpr PointwiseFunction functions[] = {PointwiseFunction::copy, PointwiseFunction::relu,
                                           PointwiseFunction::tanh, PointwiseFunction::sigmoid,
                                           PointwiseFunction::add,  PointwiseFunction::bias};
constexpr const char* names[] = {"copy", "relu", "tanh", "sigmoid", "add", "bias"};

void add_forward(Suite& suite, PointwiseFunction f, DType dtype, int64_t rows, int64_t cols,
                 bool bench) {
  auto function = [=](Case& c) {
    PointwiseArgs args;
    args.function = f;
    const int64_t live = rows - rows / 8;  // some spare rows
    args.row_count = c.ints({static_cast<int32_t>(live)});
    args.x = c.input({rows, cols}, dtype, {Fill::uniform, -12, 12});
    if (f == PointwiseFunction::add) args.z = c.input({rows, cols}, dtype);
    if (f == PointwiseFunction::bias) args.z = c.input({cols}, DType::f32);
    // In place, so that untouched spare rows must stay what they were.
    args.y = c.in_out("y", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
    c.work(0, (f == PointwiseFunction::add ? 3.0 : 2.0) * live_bytes(rows, cols, dtype));
    c.run(args);
  };
  const std::string label =
      str(names[static_cast<int>(f)], "/", name_of(dtype), "/", rows, "x", cols);
  if (bench) {
    suite.add_bench<PointwiseArgs>(label, function);
  } else {
    suite.add<PointwiseArgs>(label, function);
  }
}

void add_backward(Suite& suite, PointwiseFunction f, DType dtype, int64_t rows, int64_t cols,
                  bool bench = false) {
  auto function = [=](Case& c) {
    PointwiseGradArgs args;
    args.function = f;
    args.y = c.input({rows, cols}, dtype);
    args.dy = c.input({rows, cols}, dtype);
    args.dx = c.output("dx", {rows, cols}, dtype, Tolerance::ulps(dtype, 4));
    c.work(0, static_cast<double>(args.y.bytes()) * 3);
    c.run(args);
  };
  const std::string label =
      str(names[static_cast<int>(f)], "/", name_of(dtype), "/", rows, "x", cols);
  if (bench) {
    suite.add_bench<PointwiseGradArgs>(label, function);
  } else {
    suite.add<PointwiseGradArgs>(label, function);
  }
}

// NaN must come out wherever it went in, or a training run that has gone wrong looks well.
void add_special(Suite& suite, PointwiseFunction f, DType dtype) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double inf = std::numeric_limits<double>::infinity();
  suite.add<PointwiseArgs>(
      str(names[static_cast<int>(f)], "/", name_of(dtype), "/special values"), [=](Case& c) {
        std::vector<double> values;  // in every lane of a vector, and in the rest
        for (int i = 0; i < 37; ++i) {
          values.push_back(std::vector{nan, inf, -inf, 0.0, -0.0, 1e30, -1e30}[i % 7]);
        }
        PointwiseArgs args;
        args.function = f;
        args.x = c.input_values({1, 37}, dtype, values);
        if (f == PointwiseFunction::add) args.z = c.input({1, 37}, dtype);
        if (f == PointwiseFunction::bias) args.z = c.input({37}, DType::f32);
        args.y = c.output("y", {1, 37}, dtype, Tolerance::ulps(dtype, 4));
        c.run(args);
      });
}

}  // namespace

void pointwise_check(Suite& suite) {
  for (PointwiseFunction f : functions) {
    for (DType dtype : {DType::f32, DType::bf16}) add_special(suite, f, dtype);
  }
  for (PointwiseFunction f : functions) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (int64_t rows : {0, 1, 33, 129}) {
        for (int64_t cols : {1, 7, 32, 65, 513}) {
          add_forward(suite, f, dtype, rows, cols, false);
          if (f < PointwiseFunction::add) add_backward(suite, f, dtype, rows, cols);
        }
      }
    }
    add_forward(suite, f, DType::f32, 4096, 1024, true);
    if (f < PointwiseFunction::add) add_backward(suite, f, DType::f32, 4096, 1024, true);
  }
}

}  // namespace rondo::check
