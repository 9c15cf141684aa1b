// Copies with a change of type or scale, and sums at fan-in.
//
//   cast        y = x, rounded to nearest even    any of f32, bf16, f64 to any of them
//   fill        y = value
//   scale       y = alpha * x
//   accumulate  y = y + alpha * x                 where gradients of one value meet
//
// Shapes: x, y [n] or [rows, cols], row-major and of equal shape. scale and accumulate: f32 or
// bf16,
//   x and y may differ (both f64 in ref); the sum is f32, rounded once to the type of y.
//   fill: any dtype; the value is rounded.
// Only the first `*row_count` rows are touched when row_count is given (device memory).
// Aliasing: y may be x when the types are equal.
// Determinism: element-wise, so bitwise the same for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

struct CastArgs {
  static constexpr const char* op = "cast";
  TensorView x;
  TensorView y;
  const int32_t* row_count = nullptr;
};

struct FillArgs {
  static constexpr const char* op = "fill";
  TensorView y;
  double value = 0;
  const int32_t* row_count = nullptr;
};

struct ScaleArgs {
  static constexpr const char* op = "scale";
  float alpha = 1;
  TensorView x;
  TensorView y;
  const int32_t* row_count = nullptr;
};

struct AccumulateArgs {
  static constexpr const char* op = "accumulate";
  float alpha = 1;
  TensorView x;
  TensorView y;
  const int32_t* row_count = nullptr;
};

std::span<const Variant> cast_variants();
std::span<const Variant> fill_variants();
std::span<const Variant> scale_variants();
std::span<const Variant> accumulate_variants();

}  // namespace rondo
