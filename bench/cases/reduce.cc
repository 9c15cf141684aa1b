#include "kernels/reduce/reduce.h"

#include <cmath>

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

// spread: with the workspace that lets GPUs use more blocks.
void rows_case(Case& c, ReduceRowsArgs& args, DType dtype, int64_t rows, int64_t cols,
               bool accumulate, bool spread) {
  args.accumulate = accumulate;
  const PackedView layout = c.packed(std::vector<int32_t>(rows ? 1 : 0, static_cast<int32_t>(rows)),
                                     static_cast<int32_t>(rows / 8));
  args.row_count = &layout.extent->rows;
  args.x = c.rows_input(layout, cols, dtype);
  // A block adds 64 values of order 1 in f32: a random walk of partial sums up to about 15, each
  // rounded, so about 8 * 15 * 2^-24 for the worst of many columns; blocks add up as a root.
  const double blocks = std::ceil(static_cast<double>(rows) / 64);
  args.y =
      c.sums(accumulate, "y", {cols}, DType::f32, {120 * std::sqrt(blocks) * 0x1p-24, 0x1p-23});
  if (spread) {
    args.workspace = c.workspace(reduce_rows_workspace_bytes(c.context(), args.x.dim(0), cols));
  }
  c.work(static_cast<double>(rows * cols),
         static_cast<double>(rows * cols) * static_cast<double>(size_of(dtype)));
}

void squares_case(Case& c, SumSquaresArgs& args, DType dtype, DType out, int64_t n, bool accumulate,
                  double size) {
  args.accumulate = accumulate;
  args.x = c.input({n}, dtype, {Fill::uniform, -size, size});
  args.out = c.sums(accumulate, "out", {1}, out, {0, out == DType::f64 ? 0x1p-42 : 0x1p-23},
                    {Fill::uniform, 0, 1});
  args.workspace = c.workspace(reduce_workspace_bytes);
  c.work(2.0 * static_cast<double>(n), static_cast<double>(args.x.bytes()));
}

// A share of the values is NaN or infinite.
TensorView nonfinite_input(Case& c, DType dtype, int64_t n) {
  const double special[] = {infinity, -infinity, nan, 3e38, 0, 1e-40};
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(special[c.random(6)]);
  return c.input_values({n}, dtype, values);
}

void nonfinite_case(Case& c, CountNonfiniteArgs& args, DType dtype, int64_t n, bool accumulate) {
  args.accumulate = accumulate;
  args.x = nonfinite_input(c, dtype, n);
  args.out = c.sums(accumulate, "out", {1}, DType::i32, Tolerance::exact(), {Fill::uniform, 0, 9});
  args.workspace = c.workspace(reduce_workspace_bytes);
  c.work(0, static_cast<double>(args.x.bytes()));
}

void not_finite(Case& c, SumSquaresArgs& args) {
  args.x = nonfinite_input(c, DType::f32, 100);
  args.out = c.output("out", {1}, DType::f64, Tolerance::exact());
  args.workspace = c.workspace(reduce_workspace_bytes);
}

// Small integers: the sum is exact in any order. More partial sums than a block has threads.
void exact_squares(Case& c, SumSquaresArgs& args) {
  std::vector<double> values;
  for (int i = 0; i < 1100001; ++i) values.push_back(static_cast<double>(c.random(9)) - 4);
  args.x = c.input_values({1100001}, DType::f32, values);
  args.out = c.output("out", {1}, DType::f64, Tolerance::exact());
  args.workspace = c.workspace(reduce_workspace_bytes);
}

}  // namespace

void reduce_cases(Suite& suite) {
  constexpr DType f32 = DType::f32, f64 = DType::f64;
  for (const auto& [dtype, accumulate] : every(f32_bf16, {false, true})) {
    const std::string label = str(name_of(dtype), accumulate ? "/accumulate/" : "/");
    for (const auto& [rows, cols] : every({0, 1, 33, 65, 500}, {1, 7, 31, 32, 33, 65, 129, 300}))
      suite.add(str(label, rows, "x", cols), rows_case, dtype, rows, cols, accumulate,
                cols % 2 == 1);
    suite.add(label + "1500x33", rows_case, dtype, 1500, 33, accumulate, false);
    suite.add(label + "spread/1500x33", rows_case, dtype, 1500, 33, accumulate, true);
    for (int64_t n : {0, 1, 7, 31, 32, 33, 65, 8192, 30001, 600001}) {
      suite.add(str(label, "f32/", n), squares_case, dtype, f32, n, accumulate, 1);
      suite.add(str(label, "f64/", n), squares_case, dtype, f64, n, accumulate, 1);
      suite.add(str(label, n), nonfinite_case, dtype, n, accumulate);
    }
  }
  suite.add("squares past the range of f32", squares_case, f32, f64, 1000, false, 1e30);
  suite.add("exact/1100001", exact_squares);
  suite.add("not finite", not_finite);
  suite.add_bench("f32/4096x2048", rows_case, f32, 4096, 2048, false, true);
  suite.add_bench("f32/16384x32", rows_case, f32, 16384, 32, false, true);
  suite.add_bench("f32/8388608", squares_case, f32, f64, 8 << 20, false, 1);
  suite.add_bench("f32/1048576", nonfinite_case, f32, 1 << 20, false);
}

}  // namespace rondo::check
