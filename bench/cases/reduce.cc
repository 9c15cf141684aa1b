#include <cmath>
#include <limits>

#include "bench/cases/check/check.h"
#include "kernels/reduce/reduce.h"

namespace rondo::check {
namespace {

// spread: with the workspace that lets GPUs use more blocks.
void rows_case(Case& c, DType dtype, int64_t rows, int64_t cols, bool accumulate, bool spread) {
  ReduceRowsArgs args;
  args.accumulate = accumulate;
  const PackedView layout = c.packed(std::vector<int32_t>(rows ? 1 : 0, static_cast<int32_t>(rows)),
                                     static_cast<int32_t>(rows / 8));
  args.row_count = &layout.extent->rows;
  args.x = c.rows_input(layout, cols, dtype);
  // A block adds 64 values of order 1 in f32: a random walk of partial sums up to about 15, each
  // rounded, so about 8 * 15 * 2^-24 for the worst of many columns; blocks add up as a root.
  const double blocks = std::ceil(static_cast<double>(rows) / 64);
  const Tolerance tolerance = {120 * std::sqrt(blocks) * 0x1p-24, 0x1p-23};
  args.y = accumulate ? c.in_out("y", {cols}, DType::f32, tolerance)
                      : c.output("y", {cols}, DType::f32, tolerance);
  if (spread) {
    args.workspace = c.workspace(reduce_rows_workspace_bytes(c.context(), args.x.dim(0), cols));
  }
  c.work(static_cast<double>(rows * cols),
         static_cast<double>(rows * cols) * static_cast<double>(size_of(dtype)));
  c.run(args);
}

void squares_case(Case& c, DType dtype, DType out, int64_t n, bool accumulate, double size) {
  SumSquaresArgs args;
  args.accumulate = accumulate;
  args.x = c.input({n}, dtype, {Fill::uniform, -size, size});
  const Tolerance tolerance = {0, out == DType::f64 ? 0x1p-42 : 0x1p-23};
  args.out = accumulate ? c.in_out("out", {1}, out, tolerance, {Fill::uniform, 0, 1})
                        : c.output("out", {1}, out, tolerance);
  args.workspace = c.workspace(reduce_workspace_bytes);
  c.work(2.0 * static_cast<double>(n), static_cast<double>(args.x.bytes()));
  c.run(args);
}

// A share of the values is NaN or infinite.
TensorView nonfinite_input(Case& c, DType dtype, int64_t n) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double special[] = {inf, -inf, std::numeric_limits<double>::quiet_NaN(), 3e38, 0, 1e-40};
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(special[c.random(6)]);
  return c.input_values({n}, dtype, values);
}

void nonfinite_case(Case& c, DType dtype, int64_t n, bool accumulate) {
  CountNonfiniteArgs args;
  args.accumulate = accumulate;
  args.x = nonfinite_input(c, dtype, n);
  args.out = accumulate
                 ? c.in_out("out", {1}, DType::i32, Tolerance::exact(), {Fill::uniform, 0, 9})
                 : c.output("out", {1}, DType::i32, Tolerance::exact());
  args.workspace = c.workspace(reduce_workspace_bytes);
  c.work(0, static_cast<double>(args.x.bytes()));
  c.run(args);
}

}  // namespace

void reduce_cases(Suite& suite) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (bool accumulate : {false, true}) {
      const std::string label = str(name_of(dtype), accumulate ? "/accumulate/" : "/");
      for (int64_t rows : {0, 1, 33, 65, 500}) {
        for (int64_t cols : {1, 7, 31, 32, 33, 65, 129, 300}) {
          suite.add<ReduceRowsArgs>(str(label, rows, "x", cols), [=](Case& c) {
            rows_case(c, dtype, rows, cols, accumulate, cols % 2 == 1);
          });
        }
      }
      for (bool spread : {false, true}) {
        suite.add<ReduceRowsArgs>(str(label, spread ? "spread/" : "", "1500x33"), [=](Case& c) {
          rows_case(c, dtype, 1500, 33, accumulate, spread);
        });
      }
      for (int64_t n : {0, 1, 7, 31, 32, 33, 65, 8192, 30001, 600001}) {
        for (DType out : {DType::f32, DType::f64}) {
          suite.add<SumSquaresArgs>(str(label, name_of(out), "/", n), [=](Case& c) {
            squares_case(c, dtype, out, n, accumulate, 1);
          });
        }
        suite.add<CountNonfiniteArgs>(str(label, n),
                                      [=](Case& c) { nonfinite_case(c, dtype, n, accumulate); });
      }
    }
  }
  suite.add<SumSquaresArgs>("squares past the range of f32", [](Case& c) {
    squares_case(c, DType::f32, DType::f64, 1000, false, 1e30);
  });
  // Small integers: the sum is exact in any order. More partial sums than a block has threads.
  suite.add<SumSquaresArgs>("exact/1100001", [](Case& c) {
    std::vector<double> values;
    for (int i = 0; i < 1100001; ++i) values.push_back(static_cast<double>(c.random(9)) - 4);
    SumSquaresArgs args;
    args.x = c.input_values({1100001}, DType::f32, values);
    args.out = c.output("out", {1}, DType::f64, Tolerance::exact());
    args.workspace = c.workspace(reduce_workspace_bytes);
    c.run(args);
  });
  suite.add<SumSquaresArgs>("not finite", [](Case& c) {
    SumSquaresArgs args;
    args.x = nonfinite_input(c, DType::f32, 100);
    args.out = c.output("out", {1}, DType::f64, Tolerance::exact());
    args.workspace = c.workspace(reduce_workspace_bytes);
    c.run(args);
  });
  suite.add_bench<ReduceRowsArgs>(
      "f32/4096x2048", [](Case& c) { rows_case(c, DType::f32, 4096, 2048, false, true); });
  suite.add_bench<ReduceRowsArgs>(
      "f32/16384x32", [](Case& c) { rows_case(c, DType::f32, 16384, 32, false, true); });
  suite.add_bench<SumSquaresArgs>(
      "f32/8388608", [](Case& c) { squares_case(c, DType::f32, DType::f64, 8 << 20, false, 1); });
  suite.add_bench<CountNonfiniteArgs>(
      "f32/1048576", [](Case& c) { nonfinite_case(c, DType::f32, 1 << 20, false); });
}

}  // namespace rondo::check
