// Convolution over the frames of packed batches.
//
//   conv              y[t, o] = b[o] + sum of w[o, i, k] x[t * stride + k * dilation - left, i]
//                     over taps k and columns i
//   conv_grad_input   dx[s, i] = sum of w[o, i, k] dy[t, o] over all o and all (t, k) with
//                     t * stride + k * dilation - left == s
//   conv_grad_weight  dw[o, i, k] (+)= sum of dy[t, o] x[t * stride + k * dilation - left, i] over
//                     the frames t of all sequences
//
// (The bias's gradient is reduce_rows of dy.) Taps are not mirrored, as in other libraries.
//
// Frames of x before a sequence's first and past its last count as zeros, or are those of `before`
// and `after`, when a batch is a part of longer sequences: before[j] is frame j - L, after[j] frame
// length + j. Frames beyond those are zeros again.
//
// Shapes: x, dx [rows, in] in layout `from`; y, dy [rows', out] in layout `to`, which has the same
//   sequences in the same order, of any lengths: they say how many frames are computed, and so
//   where the padding on the right ends (conv_length() is the usual rule). w [out, in * kernel],
//   tap by tap within a column: PyTorch's [out, in, kernel]. bias [out] or absent. before, dbefore
//   [L, N, in], after, dafter [R, N, in], N = capacity.sequences; each may be absent. What dbefore
//   and dafter hold of sequences without frames is zero. dx may be absent.
// dtypes: x, y, w and their gradients f32, bf16 or f64 (the same), but bias and dw f32 (f64 for
//   f64). Sums are f32 (double in ref).
// Rows past the extents are not read for a result; those of y and dx may be written, those of dy
//   set to zero. Aliasing: none.
// Determinism: bitwise, for any thread count. With gemm's own variants a frame of y and of dx has
//   the same bits whatever else is in the batch, so that results do not depend on batching or cuts.
//
// Algorithm: windows of frames are gathered into rows, some rows at a time, and multiplied by the
// gemm op (K. Chellapilla, S. Puri, P. Simard, "High Performance Convolutional Neural Networks for
// Document Processing", 2006). The gradient of the input gathers windows of dy in the same way.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

struct ConvDims {
  int64_t in = 0, out = 0;
  int32_t kernel = 1, stride = 1, dilation = 1;  // each >= 1
  int32_t left = 0;  // >= 0: frames that the first window begins before frame 0

  // Frames from a window's first to its last.
  constexpr int64_t span() const { return int64_t{dilation} * (kernel - 1) + 1; }
};

// Which frames beside its own a frame of y is made of, where the padding is span() - 1 frames in
// all: then ceil(length / stride) frames come out, frame t at frame t * stride of x.
enum class ConvContext : uint8_t {
  both,    // as many before as behind it; of an even number of taps one more before it
  past,    // none behind it: causal
  future,  // none before it: looks ahead
};
// ConvDims::left for it.
constexpr int32_t conv_left(ConvContext context, int64_t span) {
  const int64_t before = context == ConvContext::future ? 0
                         : context == ConvContext::past ? span - 1
                                                        : span / 2;
  return static_cast<int32_t>(before);
}

// Frames of y with `right` frames of padding behind the sequence. An empty sequence stays empty.
constexpr int32_t conv_length(const ConvDims& dims, int32_t length, int32_t right) {
  const int64_t slack = int64_t{dims.left} + length + right - dims.span();
  return length == 0 || slack < 0 ? 0 : static_cast<int32_t>(slack / dims.stride + 1);
}

struct ConvArgs {
  static constexpr const char* op = "conv";
  ConvDims dims;
  PackedView from, to;
  TensorView x, before, after;
  TensorView w;
  TensorView bias;
  TensorView y;
  TensorView workspace;  // u8, conv_workspace_bytes()
};

struct ConvGradInputArgs {
  static constexpr const char* op = "conv_grad_input";
  ConvDims dims;
  PackedView from, to;
  TensorView dy;
  TensorView w;
  TensorView dx, dbefore, dafter;
  // `to` has ceil(length / stride) frames of each sequence, as with any ConvContext: then the
  // frames of dx are computed stride by stride, of the taps that reach them alone.
  bool whole_strides = false;
  TensorView workspace;
};

struct ConvGradWeightArgs {
  static constexpr const char* op = "conv_grad_weight";
  ConvDims dims;
  PackedView from, to;
  TensorView x, before, after;
  TensorView dy;
  TensorView dw;
  bool accumulate = false;
  TensorView workspace;
};

enum class ConvPhase : uint8_t { forward, grad_input, grad_weight };

// Enough for every variant of context.backend; `compute` is the dtype of x.
size_t conv_workspace_bytes(const Context& context, ConvPhase phase, const ConvDims& dims,
                            DType compute, const PackedCapacity& from, const PackedCapacity& to);

std::span<const Variant> conv_variants();
std::span<const Variant> conv_grad_input_variants();
std::span<const Variant> conv_grad_weight_variants();

}  // namespace rondo
