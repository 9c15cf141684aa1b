// Reductions in a fixed order.
//
//   reduce_rows      y[c] (+)= sum over the rows of x[r, c]        bias gradients, sums of losses
//   sum_squares      out (+)= sum of x[i]^2                        the global gradient norm
//   count_nonfinite  out (+)= how many x[i] are NaN or infinite
//
// reduce_rows: x [rows, C] f32, bf16 or f64; y [C] f32 (f64 for f64). Only the first `*row_count`
//   rows are read when row_count is given (device memory). Partial sums of at most 64 rows are
//   f32, everything above them double.
// sum_squares: x [n] f32, bf16 or f64; out [1] f32 or f64. Squares and sums are double: nothing
//   overflows that is finite. NaN and infinities propagate.
// count_nonfinite: x [n] f32, bf16 or f64; out [1] i32.
//   workspace: u8, reduce_rows_workspace_bytes, lets GPUs spread rows over more blocks; may be
//   absent. The result does not depend on it, nor on the capacity of x.
// accumulate: added to what y / out holds; otherwise that is not read.
// workspace: u8, at least reduce_workspace_bytes (sum_squares, count_nonfinite; devices whose
//   blocks meet in memory need it, the host does not and takes an absent one).
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

inline constexpr size_t reduce_workspace_bytes = 1024 * sizeof(double);

struct ReduceRowsArgs {
  static constexpr const char* op = "reduce_rows";
  TensorView x;
  TensorView y;
  bool accumulate = false;
  const int32_t* row_count = nullptr;
  TensorView workspace;
};

struct SumSquaresArgs {
  static constexpr const char* op = "sum_squares";
  TensorView x;
  TensorView out;
  bool accumulate = false;
  TensorView workspace;
};

struct CountNonfiniteArgs {
  static constexpr const char* op = "count_nonfinite";
  TensorView x;
  TensorView out;
  bool accumulate = false;
  TensorView workspace;
};

size_t reduce_rows_workspace_bytes(const Context& context, int64_t rows, int64_t cols);

std::span<const Variant> reduce_rows_variants();
std::span<const Variant> sum_squares_variants();
std::span<const Variant> count_nonfinite_variants();

}  // namespace rondo
