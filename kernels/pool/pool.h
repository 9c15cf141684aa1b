// From sequences to single vectors: the last frame, or the mean over all frames.
//
//   pool       y[n, c] = x at the last frame of sequence n, or the mean of its frames
//   pool_grad  dx[r, c] from dy[n, c]: all to the last frame, or dy / length to each
//
// Shapes: x, dx [rows, C] packed (kernels/base/packed.h); y, dy [N, C], N =
//   layout.capacity.sequences, in packed order; one dtype (f32, bf16, f64) within a call.
// A sequence of length 0, and every row of y at or past extent->sequences, becomes 0.
// dx rows past the extent are not written. Aliasing: none.
// Frames are added in order: f32 in blocks of 64, double across them (double in ref).
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"
#include "kernels/pool/pooling.h"

namespace rondo {

struct PoolArgs {
  static constexpr const char* op = "pool";
  Pooling pooling = Pooling::last;
  PackedView layout;
  TensorView x;
  TensorView y;
};

struct PoolGradArgs {
  static constexpr const char* op = "pool_grad";
  Pooling pooling = Pooling::last;
  PackedView layout;
  TensorView dy;
  TensorView dx;
};

std::span<const Variant> pool_variants();
std::span<const Variant> pool_grad_variants();

}  // namespace rondo
