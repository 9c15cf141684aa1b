// Convolution of packed batches over time, or over height and time: of frames that are values, or
// of images, whose columns of pixels are the frames.
//
//   conv              y[t, g, o] = b[o] + sum of w[o, i, k, l] x[t', g', i] over rows k and
//                     columns l of the kernel and channels i, where
//                       g' = g * height.stride + k * height.dilation - height.before
//                       t' = t * time.stride + l * time.dilation - time.before
//   conv_grad_input   dx[t', g', i] = sum of w[o, i, k, l] dy[t, g, o] over all o and all
//                     (t, g, k, l) that reach it
//   conv_grad_weight  dw[o, i, k, l] (+)= sum of dy[t, g, o] x[t', g', i] over the pixels of y,
//                     dbias[o] (+)= sum of dy[t, g, o]
//
// Over time alone the image is one row high, and so is the kernel.
//
// With groups, channels are divided into as many groups of neighbours, in x as in y, and y's are
// made of x's of the same group alone: i counts those. Depthwise convolutions have as many groups
// as channels.
//
// The kernel is not mirrored, as in other libraries. Pixels above and below the image count as
// zeros, and so do frames before a sequence's first and past its last, unless `before` and `after`
// have them, when a batch is a part of longer sequences: before[j] is frame j - L, after[j] frame
// length + j. Frames beyond those are zeros again.
//
// Shapes: a frame holds its pixels from top to bottom, and of each pixel all channels: x, dx
//   [rows, in_height * in] in layout `from`; y, dy [rows', out_height * out] in layout `to`, which
//   has the same sequences in the same order, of any lengths. out_height and the lengths say what
//   is computed, and so where the padding at the bottom and behind ends (conv_length() is the usual
//   rule). w, dw [out, in / groups * height.kernel * time.kernel]: PyTorch's [out, in / groups,
//   height, width]. bias, dbias [out] or absent. before, dbefore [L, N, in_height * in], after,
//   dafter [R, N, in_height * in], N = capacity.sequences; each may be absent, and so may dx, dw.
//   What dbefore and dafter hold of sequences without frames is zero.
// dtypes: x, y, w and their gradients f32, bf16 or f64 (the same), but bias, dw and dbias f32 (f64
//   for f64). Sums are f32 (double in ref), and products of bf16 are exact; the CPU's instruction
//   for them (avx512bf16) takes subnormals for zeros.
// Rows past the extents are not read for a result; those of y and dx may be written, those of dy
//   set to zero. Aliasing: none. Weights that are not finite may give NaN beside the edges, where
//   they meet the padding.
// Determinism: bitwise, for any thread count. A frame of y and of dx has the same bits whatever
//   else is in the batch (where there is one row, with gemm's own variants), so that results do not
//   depend on batching or cuts.
//
// Algorithms: where there is one row and one group, windows of frames are gathered into rows, some
// rows at a time, and multiplied by the gemm op (K. Chellapilla, S. Puri, P. Simard, "High
// Performance Convolutional Neural Networks for Document Processing", 2006). The gradient of the
// input gathers windows of dy in the same way.
// Of all others the windows would be many times as large as the image. On CPUs they are convolved
// directly with a register tile of pixels by output channels (E. Georganas et al., "Anatomy of
// High-Performance Deep Learning Convolutions on SIMD Architectures", 2018): frames are copied into
// a padded strip that stays in the cache, weights are arranged in panels of output channels, and
// pixels below one another share every load of weights. Where the CPU multiplies pairs of bf16
// fast, strips and panels hold pairs. Of images with one channel all columns of a window are copied
// side by side. Groups are done one after the other; of depthwise convolutions with as many outputs
// as inputs all at once, vectors along the channels.
#pragma once

#include "kernels/base/dispatch.h"
#include "kernels/base/op.h"
#include "kernels/base/packed.h"
#include "kernels/conv/conv_context.h"

namespace rondo {

class PackedWeights;  // kernels/base/cpu/packed_weights.h

// The kernel along one axis.
struct ConvAxis {
  int32_t kernel = 1, stride = 1, dilation = 1;  // each >= 1
  int32_t before = 0;  // >= 0: positions that the first window begins before position 0

  // Positions from a window's first to its last.
  constexpr int64_t span() const { return int64_t{dilation} * (kernel - 1) + 1; }
};

constexpr ConvAxis conv_axis(int32_t kernel, int32_t stride, int32_t dilation,
                             ConvContext context = ConvContext::both) {
  ConvAxis a{kernel, stride, dilation, 0};
  const int64_t before = context == ConvContext::future ? 0
                         : context == ConvContext::past ? a.span() - 1
                                                        : a.span() / 2;
  a.before = static_cast<int32_t>(before);
  return a;
}

// Positions that come out, with `behind` positions of padding at the end. None of none.
constexpr int32_t conv_length(const ConvAxis& a, int32_t size, int32_t behind) {
  const int64_t slack = int64_t{a.before} + size + behind - a.span();
  return size == 0 || slack < 0 ? 0 : static_cast<int32_t>(slack / a.stride + 1);
}

struct ConvDims {
  int64_t in = 1, out = 1;  // channels
  int32_t in_height = 1, out_height = 1;
  ConvAxis height, time;
  int64_t groups = 1;  // divides in and out
  // Forward, in f32, of one row: windows and weights are rounded to 8 bits, as gemm's int8 is
  // (kernels/gemm/gemm.h), and results have the same bits in `ref` and on CPUs, which have it.
  bool int8 = false;

  constexpr int64_t in_cols() const { return in_height * in; }
  constexpr int64_t out_cols() const { return out_height * out; }
  constexpr int64_t taps() const { return int64_t{height.kernel} * time.kernel; }
  // Columns of the weights.
  constexpr int64_t weight_cols() const { return in / groups * taps(); }
  // Of one row and one group: computed by windows.
  constexpr bool one_row() const {
    return in_height == 1 && out_height == 1 && height.kernel == 1 && height.before == 0 &&
           groups == 1;
  }
};

struct ConvArgs {
  static constexpr const char* op = "conv";
  ConvDims dims;
  PackedView from, to;
  TensorView x, before, after;
  TensorView w;
  TensorView bias;
  TensorView y;
  TensorView workspace;  // u8, conv_workspace_bytes()
  // With int8, where the weights do not change: where CPUs keep them packed.
  PackedWeights* packed_w = nullptr;
};

struct ConvGradInputArgs {
  static constexpr const char* op = "conv_grad_input";
  ConvDims dims;
  PackedView from, to;
  TensorView dy;
  TensorView w;
  TensorView dx, dbefore, dafter;
  // `to` has ceil(length / stride) frames of each sequence, as with any ConvContext: then windows
  // are of the taps that reach a frame alone.
  bool whole_strides = false;
  TensorView workspace;
};

struct ConvGradWeightArgs {
  static constexpr const char* op = "conv_grad_weight";
  ConvDims dims;
  PackedView from, to;
  TensorView x, before, after;
  TensorView dy;
  TensorView dw, dbias;
  bool accumulate = false;
  TensorView workspace;
};

enum class ConvPhase : uint8_t { forward, grad_input, grad_weight };

// Enough for every variant of context.backend, of context.pool's size; `compute` is the dtype of x.
size_t conv_workspace_bytes(const Context& context, ConvPhase phase, const ConvDims& dims,
                            DType compute, const PackedCapacity& from, const PackedCapacity& to);

std::span<const Variant> conv_variants();
std::span<const Variant> conv_grad_input_variants();
std::span<const Variant> conv_grad_weight_variants();
// A Chooser (kernels/base/dispatch.h): where vdpbf16ps is the slower one, bf16 is widened to f32.
std::string_view choose_conv(const Context& context, const void* args, const MayRun& may_run);

}  // namespace rondo
