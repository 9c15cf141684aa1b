// Element-wise maps over a matrix [rows, cols]: activations, sums, bias.
//
//   pointwise       y = f(x) or f(x, z)
//   pointwise_grad  dx = dy * f'(.), from y for activations (x is not kept)
//
// Shapes: x, y, dy, dx [rows, cols], row-major, one dtype (f32, bf16, f64) within a call.
//   add           z [rows, cols]
//   bias          z [cols], f32 or the dtype of x, added to each row
// Only the first `*row_count` rows are touched when row_count is given (device memory), all of
// them otherwise.
// Aliasing: y may be x (or z for add); dx may be dy.
// Determinism: element-wise, so bitwise the same for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

enum class PointwiseFunction : uint8_t { copy, relu, tanh, sigmoid, add, bias };

struct PointwiseArgs {
  static constexpr const char* op = "pointwise";
  PointwiseFunction function = PointwiseFunction::copy;
  TensorView x;
  TensorView z;  // add, bias
  TensorView y;
  const int32_t* row_count = nullptr;
};

struct PointwiseGradArgs {
  static constexpr const char* op = "pointwise_grad";
  PointwiseFunction function = PointwiseFunction::copy;  // copy, relu, tanh, sigmoid
  TensorView y;
  TensorView dy;
  TensorView dx;
  const int32_t* row_count = nullptr;
};

std::span<const Variant> pointwise_variants();
std::span<const Variant> pointwise_grad_variants();

}  // namespace rondo
