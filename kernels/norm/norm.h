// Layer normalisation over the columns of each row (Ba, Kiros, Hinton 2016).
//
//   layer_norm       mean[r] = mean of x[r, .], rstd[r] = 1 / sqrt(variance + epsilon), the
//   variance
//                    divided by C;  xhat = (x - mean) * rstd;  y = xhat * gamma + beta
//   layer_norm_grad  with g = dy * gamma:
//                    dx = rstd * (g - mean over c of g - xhat * mean over c of (g * xhat))
//                    dgamma (+)= sum over rows of dy * xhat;  dbeta (+)= sum over rows of dy
//
// Shapes: x, y, dy, dx [rows, C], row-major, one dtype (f32, bf16, f64) within a call, C >= 1;
//   gamma, beta, dgamma, dbeta [C] and mean, rstd [rows] f32 (f64 for f64). mean and rstd are kept
//   for the gradient; both absent at inference.
// Only the first `*row_count` rows are touched when row_count is given (device memory).
// dx absent: only the weight gradients; dgamma and dbeta both absent: only dx.
// accumulate: dgamma and dbeta are added to what is there; otherwise that is not read.
// workspace: u8, layer_norm_grad_workspace_bytes, lets GPUs spread rows over more blocks; may be
//   absent. The result does not depend on it.
// Aliasing: y may be x; dx may be dy (not x).
// Determinism: bitwise, for any thread count: rows are added in order, f32 in blocks of 64, double
// across them.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

struct LayerNormArgs {
  static constexpr const char* op = "layer_norm";
  float epsilon = 1e-5f;
  TensorView x;
  TensorView gamma, beta;
  TensorView y;
  TensorView mean, rstd;
  const int32_t* row_count = nullptr;
};

struct LayerNormGradArgs {
  static constexpr const char* op = "layer_norm_grad";
  TensorView x;
  TensorView gamma;
  TensorView mean, rstd;
  TensorView dy;
  TensorView dx;
  TensorView dgamma, dbeta;
  bool accumulate = false;
  const int32_t* row_count = nullptr;
  TensorView workspace;
};

size_t layer_norm_grad_workspace_bytes(const Context& context, int64_t rows, int64_t cols);

std::span<const Variant> layer_norm_variants();
std::span<const Variant> layer_norm_grad_variants();

}  // namespace rondo
