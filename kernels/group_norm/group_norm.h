// Group normalisation of packed batches of images (Y. Wu, K. He, "Group Normalization", 2018): of
// every sequence by itself, over all its frames and rows of pixels and the channels of a group.
//
//   group_norm       of sequence n and group k, over its own frames t, all rows h and the channels
//                    c of the group: mean[n, k] and rstd[n, k] = 1 / sqrt(variance + epsilon), the
//                    variance divided by the number of values;
//                    xhat = (x - mean) * rstd;  y = xhat * gamma[c] + beta[c]
//   group_norm_grad  with g = dy * gamma[c]:
//                    dx = rstd * (g - mean of g - xhat * mean of (g * xhat)), means over the same
//                    values;  dgamma[c] (+)= sum of dy * xhat;  dbeta[c] (+)= sum of dy
//
// Group k has the channels from k * channels / groups on, as PyTorch's nn.GroupNorm; that one
// averages over the padding of a padded batch, and here there is none.
//
// Shapes: x, y, dy, dx [rows, height * channels] in `layout`, a frame's pixels from top to bottom
//   and of each pixel all channels (kernels/conv/conv.h); one dtype (f32, bf16, f64) within a
//   call. gamma, beta, dgamma, dbeta [channels] and mean, rstd [capacity.sequences, groups] f32
//   (f64 for f64). mean and rstd are kept for the gradient; each may be absent, and is 0 for
//   sequences without frames.
// dx absent: only the gradients of the weights; dgamma or dbeta absent: without it.
// accumulate: dgamma and dbeta are added to what is there; otherwise that is not read.
// workspace: u8, group_norm_workspace_bytes, aligned to 64 bytes.
// Rows past the extent are neither read nor written. Aliasing: y may be x; dx may be dy (not x).
// Determinism: bitwise, for any thread count; y, dx, mean and rstd of a sequence have the same bits
//   whatever else is in the batch.
//
// Sums are made of blocks of 64 frames: within one, f32 over 64 pixels (on CPUs 16) or one column,
// double across these; blocks are added in order, in double. The variance is that of the blocks
// about their own means, and that of these means, so values far from zero lose nothing.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

struct GroupNormDims {
  int64_t channels = 1;
  int32_t height = 1;
  int32_t groups = 1;  // divides channels
};

struct GroupNormArgs {
  static constexpr const char* op = "group_norm";
  float epsilon = 1e-5f;
  GroupNormDims dims;
  PackedView layout;
  TensorView x;
  TensorView gamma, beta;
  TensorView y;
  TensorView mean, rstd;
  TensorView workspace;
};

struct GroupNormGradArgs {
  static constexpr const char* op = "group_norm_grad";
  GroupNormDims dims;
  PackedView layout;
  TensorView x;
  TensorView gamma;
  TensorView mean, rstd;
  TensorView dy;
  TensorView dx;
  TensorView dgamma, dbeta;
  bool accumulate = false;
  TensorView workspace;
};

// Enough for both ops and every variant of context.backend.
size_t group_norm_workspace_bytes(const Context& context, const GroupNormDims& dims,
                                  const PackedCapacity& capacity);

std::span<const Variant> group_norm_variants();
std::span<const Variant> group_norm_grad_variants();

}  // namespace rondo
