// Convolution over height and time of packed batches of images: text lines, whose columns of pixels
// are the frames.
//
//   conv2d              y[t, g, o] = b[o] + sum of w[o, i, k, l] x[t', g', i] over rows k and
//                       columns l of the kernel and channels i, where
//                         g' = g * height.stride + k * height.dilation - height.before
//                         t' = t * time.stride + l * time.dilation - time.before
//   conv2d_grad_input   dx[t', g', i] = sum of w[o, i, k, l] dy[t, g, o] over all o and all
//                       (t, g, k, l) that reach it
//   conv2d_grad_weight  dw[o, i, k, l] (+)= sum of dy[t, g, o] x[t', g', i] over the pixels of y,
//                       dbias[o] (+)= sum of dy[t, g, o]
//
// With groups, channels are divided into as many groups of neighbours, in x as in y, and y's are
// made of x's of the same group alone: i counts those. Depthwise convolutions have as many groups
// as channels.
//
// The kernel is not mirrored, as in other libraries. Pixels above and below the image count as
// zeros, and so do frames before a sequence's first and past its last, unless `before` and `after`
// have them, as in kernels/conv/conv.h: before[j] is frame j - L, after[j] frame length + j.
//
// Shapes: a frame holds its pixels from top to bottom, and of each pixel all channels: x, dx
//   [rows, in_height * in] in layout `from`; y, dy [rows', out_height * out] in layout `to`, which
//   has the same sequences in the same order, of any lengths. out_height and the lengths say what
//   is computed, and so where the padding at the bottom and behind ends. w, dw [out, in /
//   groups * height.kernel * time.kernel]: PyTorch's [out, in / groups, height, width]. bias, dbias
//   [out] or absent. before, dbefore [L, N, in_height * in], after, dafter [R, N, in_height * in],
//   N = capacity.sequences; each may be absent, and so may dx, dw. What dbefore and dafter hold of
//   sequences without frames is zero.
// dtypes: x, y, w and their gradients f32, bf16 or f64 (the same), but bias, dw and dbias f32 (f64
//   for f64). Sums are f32 (double in ref), and products of bf16 are exact; the CPU's instruction
//   for them (avx512bf16) takes subnormals for zeros.
// Rows past the extents are neither read for a result nor written. Aliasing: none. Weights that are
// not finite may give NaN beside the edges, where they meet the padding.
// Determinism: bitwise, for any thread count; a frame of y and of dx has the same bits whatever
//   else is in the batch.
//
// Algorithm on CPUs: direct convolution with a register tile of pixels by output channels
// (E. Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD
// Architectures", 2018): frames are copied into a padded strip that stays in the cache, weights are
// arranged in panels of output channels, and pixels below one another share every load of weights.
// Where the CPU multiplies pairs of bf16 fast, strips and panels hold pairs. Of images with one
// channel all columns of a window are copied side by side. Groups are done one after the other; of
// depthwise convolutions with as many outputs as inputs all at once, vectors along the channels.
#pragma once

#include "kernels/base/dispatch.h"
#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

// The kernel along one axis.
struct Conv2dAxis {
  int32_t kernel = 1, stride = 1, dilation = 1;  // each >= 1
  int32_t before = 0;  // >= 0: positions that the first window begins before position 0

  // Positions from a window's first to its last.
  constexpr int64_t span() const { return int64_t{dilation} * (kernel - 1) + 1; }
};

// The axis whose windows lie around positions 0, stride, 2 * stride ...: of an even kernel one more
// position before than behind. ceil(size / stride) positions come out.
constexpr Conv2dAxis conv2d_same(int32_t kernel, int32_t stride, int32_t dilation) {
  Conv2dAxis a{kernel, stride, dilation, 0};
  a.before = static_cast<int32_t>(a.span() / 2);
  return a;
}

struct Conv2dDims {
  int64_t in = 1, out = 1;  // channels
  int32_t in_height = 1, out_height = 1;
  Conv2dAxis height, time;
  int64_t groups = 1;  // divides in and out

  constexpr int64_t taps() const { return int64_t{height.kernel} * time.kernel; }
  // Columns of the weights.
  constexpr int64_t weight_cols() const { return in / groups * taps(); }
};

struct Conv2dArgs {
  static constexpr const char* op = "conv2d";
  Conv2dDims dims;
  PackedView from, to;
  TensorView x, before, after;
  TensorView w;
  TensorView bias;
  TensorView y;
  TensorView workspace;  // u8, conv2d_workspace_bytes()
};

struct Conv2dGradInputArgs {
  static constexpr const char* op = "conv2d_grad_input";
  Conv2dDims dims;
  PackedView from, to;
  TensorView dy;
  TensorView w;
  TensorView dx, dbefore, dafter;
  TensorView workspace;
};

struct Conv2dGradWeightArgs {
  static constexpr const char* op = "conv2d_grad_weight";
  Conv2dDims dims;
  PackedView from, to;
  TensorView x, before, after;
  TensorView dy;
  TensorView dw, dbias;
  bool accumulate = false;
  TensorView workspace;
};

enum class Conv2dPhase : uint8_t { forward, grad_input, grad_weight };

// Enough for every variant of context.backend; depends on the dims and context.pool's size alone.
size_t conv2d_workspace_bytes(const Context& context, Conv2dPhase phase, const Conv2dDims& dims);

std::span<const Variant> conv2d_variants();
std::span<const Variant> conv2d_grad_input_variants();
std::span<const Variant> conv2d_grad_weight_variants();
// A Chooser (kernels/base/dispatch.h): where vdpbf16ps is the slower one, bf16 is widened to f32.
std::string_view choose_conv2d(const Context& context, const void* args, const MayRun& may_run);

}  // namespace rondo
