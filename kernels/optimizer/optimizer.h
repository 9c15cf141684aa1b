// Optimiser steps over flat f32 arrays, driven by one block of numbers in device memory, so that a
// bound graph or a captured graph never changes between steps.
//
//   optimizer_prepare  from the summed squares of the gradients: norm, clipping, bias corrections,
//                      whether to skip; once per step
//   sgd, adam          the update of one range of parameters (call once per parameter group)
//   ema                average = ema_decay * average + (1 - ema_decay) * weights
//
// The formulas are PyTorch's (torch.optim.SGD without dampening, Adam, AdamW without amsgrad,
// torch.nn.utils.clip_grad_norm_). With g = gradient * grad_scale:
//   sgd    g += weight_decay * w;  momentum != 0: b = momentum * b + g,
//          g = nesterov ? g + momentum * b : b;  w -= lr * g
//          (b starts at 0, which makes the first step PyTorch's b = g)
//   adam   decoupled (AdamW): w -= lr * weight_decay * w; otherwise g += weight_decay * w
//          m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//          w -= lr / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + epsilon)
//   where lr = learning_rate * learning_rate_scale.
//
// Losses are sums; the division by the global count happens here, once: grad_scale =
// inverse_count * min(1, max_norm / (norm + 1e-6)), norm being that of gradient * inverse_count.
// A norm that is not finite sets skip = 1: then no array is touched (nor weights_bf16), and the
// step does not count.
//
// Shapes: weights, gradients, states [n] f32 (f64 in ref); weights_bf16 [n] bf16 or absent,
// receives the new weights rounded to nearest even.
// Aliasing: none between the arrays.
// Determinism: element-wise, so bitwise the same for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

// Device memory. The host writes the first four before a step (as one copy); the rest is written
// by optimizer_prepare, starts as zeros, and belongs into checkpoints (steps, skipped_steps).
struct OptimizerBlock {
  double learning_rate = 0;
  double inverse_count = 1;  // 1 / (what the summed loss is to be divided by)
  double max_norm = 0;       // 0: no clipping
  double ema_decay = 0;
  double steps = 0;  // completed, counting the one prepared now
  double grad_scale = 0;
  double bias_correction1 = 0;  // 1 - beta1^steps
  double bias_correction2 = 0;
  double grad_norm = 0;  // of gradient * inverse_count, before clipping
  double skip = 0;       // 1: the gradients are not finite
  double skipped_steps = 0;
};
inline constexpr int optimizer_block_doubles = sizeof(OptimizerBlock) / sizeof(double);

struct OptimizerPrepareArgs {
  static constexpr const char* op = "optimizer_prepare";
  OptimizerBlock* block = nullptr;
  const double* sum_squares = nullptr;  // of all gradients as they are, from the sum_squares op
  double beta1 = 0, beta2 = 0;          // 0 where there is no bias to correct
};

struct SgdArgs {
  static constexpr const char* op = "sgd";
  const OptimizerBlock* block = nullptr;
  TensorView weights, gradients;
  TensorView momentum_buffer;  // absent when momentum is 0
  TensorView weights_bf16;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double learning_rate_scale = 1;
};

struct AdamArgs {
  static constexpr const char* op = "adam";
  const OptimizerBlock* block = nullptr;
  TensorView weights, gradients;
  TensorView moment1, moment2;
  TensorView weights_bf16;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW
  double learning_rate_scale = 1;
};

struct EmaArgs {
  static constexpr const char* op = "ema";
  const OptimizerBlock* block = nullptr;
  TensorView weights;
  TensorView average;
};

std::span<const Variant> optimizer_prepare_variants();
std::span<const Variant> sgd_variants();
std::span<const Variant> adam_variants();
std::span<const Variant> ema_variants();

}  // namespace rondo
