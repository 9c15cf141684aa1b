// Element-wise maps over a matrix [rows, cols]: activations, sums, bias.
//
//   pointwise       y = f(x) or f(x, z)
//   pointwise_grad  dx = dy * f'(x), for functions of one operand; f' is computed from x or from y,
//                   whichever the function's row says, so that the other need not be kept
//
// Shapes: x, y, saved, dy, dx [rows, cols], row-major, one dtype (f32, bf16, f64) within a call.
//   add           z [rows, cols]
//   bias          z [cols], f32 or the dtype of x, added to each row
// Only the first `*row_count` rows are touched when row_count is given (device memory), all of
// them otherwise.
// Aliasing: y may be x (or z for add); dx may be dy.
// Determinism: element-wise, so bitwise the same for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

enum class PointwiseFunction : uint8_t { copy, relu, tanh, sigmoid, add, bias, gelu };

// What the gradient needs of the forward pass.
enum class PointwiseSaves : uint8_t { nothing, input, output };

struct PointwiseRow {
  PointwiseFunction function;
  const char* name;
  int operands;
  PointwiseSaves saves;
};

inline constexpr PointwiseRow pointwise_functions[] = {
    {PointwiseFunction::copy, "copy", 1, PointwiseSaves::nothing},
    {PointwiseFunction::relu, "relu", 1, PointwiseSaves::output},
    {PointwiseFunction::tanh, "tanh", 1, PointwiseSaves::output},
    {PointwiseFunction::sigmoid, "sigmoid", 1, PointwiseSaves::output},
    {PointwiseFunction::gelu, "gelu", 1, PointwiseSaves::input},
    {PointwiseFunction::add, "add", 2, PointwiseSaves::nothing},
    {PointwiseFunction::bias, "bias", 2, PointwiseSaves::nothing},
};

[[gnu::always_inline]] constexpr PointwiseSaves saves_of(PointwiseFunction function) {
  for (const PointwiseRow& row : pointwise_functions) {
    if (row.function == function) return row.saves;
  }
  return PointwiseSaves::nothing;
}

struct PointwiseArgs {
  static constexpr const char* op = "pointwise";
  PointwiseFunction function = PointwiseFunction::copy;
  TensorView x;
  TensorView z;  // functions of two operands
  TensorView y;
  const int32_t* row_count = nullptr;
};

struct PointwiseGradArgs {
  static constexpr const char* op = "pointwise_grad";
  PointwiseFunction function = PointwiseFunction::copy;  // of one operand
  TensorView saved;                                      // x or y; may be absent for copy
  TensorView dy;
  TensorView dx;
  const int32_t* row_count = nullptr;
};

std::span<const Variant> pointwise_variants();
std::span<const Variant> pointwise_grad_variants();

}  // namespace rondo
