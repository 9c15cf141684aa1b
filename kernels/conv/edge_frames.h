// The first and last frames of every sequence of a packed batch: what the parts of a sequence that
// is cut in time hand each other for convolutions (conv.h: before, after).
//
//   edge_frames       tail[j] = frame length - L + j of x, head[j] = frame j
//   edge_frames_grad  dx += the gradients of tail and head, each at the frame it came from
//
// Frames of tail that lie before the first are those of `before`, which has the last L frames of
// what came earlier, or zeros; frames of head past the last are zeros. Backward dbefore gets what
// belongs to `before`, added as well.
//
// Shapes: x, dx [rows, C]; before, dbefore, tail, dtail [L, N, C]; head, dhead [R, N, C]; N =
//   capacity.sequences. Sequences at or past extent->sequences have zeros in tail and head, and
//   nothing is added for them. Each of before, tail and head, and their gradients, may be absent;
//   so may dx.
// dtypes: f32, bf16 or f64, the same on all.
// Rows past the extent are neither read nor written. Aliasing: none.
// Determinism: bitwise, for any thread count; tail is added before head.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

struct EdgeFramesArgs {
  static constexpr const char* op = "edge_frames";
  PackedView layout;
  TensorView x;
  TensorView before;
  TensorView tail, head;
};

struct EdgeFramesGradArgs {
  static constexpr const char* op = "edge_frames_grad";
  PackedView layout;
  TensorView dtail, dhead;
  TensorView dx;       // in and out
  TensorView dbefore;  // in and out
};

std::span<const Variant> edge_frames_variants();
std::span<const Variant> edge_frames_grad_variants();

}  // namespace rondo
