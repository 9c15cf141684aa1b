// The frames of every sequence in the opposite order.
//
//   reverse_frames   y[t] = x[length - 1 - t] of each sequence
//
// It is its own inverse, and its own gradient: dx is dy reversed.
// Shapes: x, y [rows, C] in `layout`, of any one dtype: rows are copied as they are.
// Rows past the extent are neither read nor written. Aliasing: none.
// Determinism: bitwise.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

struct ReverseFramesArgs {
  static constexpr const char* op = "reverse_frames";
  PackedView layout;
  TensorView x;
  TensorView y;
};

std::span<const Variant> reverse_frames_variants();

}  // namespace rondo
