// Row-wise log-softmax and its gradient.
//
//   log_softmax        y[r, v] = x[r, v] - log(sum over u of exp(x[r, u])), by the row's maximum
//   log_softmax_grad   dx = dy - exp(y) * (sum over the row of dy)
//
// Shapes: x, y, dy, dx [rows, V], row-major, one dtype (f32, bf16, f64) within a call. Sums are f32
// (double in ref).
// Only the first `*row_count` rows are touched when row_count is given (device memory).
// Aliasing: y may be x; dx may be dy (not y).
// A row that holds NaN or +inf, or nothing but -inf, becomes NaN.
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

struct LogSoftmaxArgs {
  static constexpr const char* op = "log_softmax";
  TensorView x;
  TensorView y;
  const int32_t* row_count = nullptr;
};

struct LogSoftmaxGradArgs {
  static constexpr const char* op = "log_softmax_grad";
  TensorView y;
  TensorView dy;
  TensorView dx;
  const int32_t* row_count = nullptr;
};

std::span<const Variant> log_softmax_variants();
std::span<const Variant> log_softmax_grad_variants();

}  // namespace rondo
