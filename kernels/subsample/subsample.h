// Frame stacking and subsampling of packed batches.
//
//   stack_frames       y frame t is x frames t * stride ... t * stride + stack - 1 side by side;
//                      frames past the end of the sequence count as zeros
//   stack_frames_grad  dx frame s is the sum over all (t, j) with t * stride + j == s of part j of
//                      dy frame t, in the order of t; zero for frames no t reads (stride > stack)
//
// Plain stacking is stack == stride; plain subsampling is stack == 1.
//
// Shapes: x, dx [rows, C] in layout `from`; y, dy [rows', stack * C] in layout `to`, whose lengths
//   are stacked_length(length) (kernels/base/packed.h; the order of sequences stays sorted). One
//   dtype (f32, bf16, f64) within a call; sums are f32.
// stack >= 1, stride >= 1. Rows past the extents are neither read nor written. Aliasing: none.
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

// ceil(length / stride): no frame is lost, and an empty sequence stays empty.
constexpr int32_t stacked_length(int32_t length, int32_t stride) {
  return (length + stride - 1) / stride;
}

struct StackFramesArgs {
  static constexpr const char* op = "stack_frames";
  int32_t stack = 1, stride = 1;
  PackedView from, to;
  TensorView x;
  TensorView y;
};

struct StackFramesGradArgs {
  static constexpr const char* op = "stack_frames_grad";
  int32_t stack = 1, stride = 1;
  PackedView from, to;
  TensorView dy;
  TensorView dx;
};

std::span<const Variant> stack_frames_variants();
std::span<const Variant> stack_frames_grad_variants();

}  // namespace rondo
