// Losses over rows: loss and gradient in one op.
//
//   cross_entropy  loss[r] = -log softmax(logits[r])[targets[r]]
//                  grad[r, v] = (softmax(logits[r])[v] - (v == targets[r])) * grad_scale[r]
//   mse            loss[r] = sum over c of (pred[r, c] - target[r, c])^2, divided by C for mean
//                  grad[r, c] = 2 (pred - target) * grad_scale[r], divided by C for mean
//
// These are sums: nothing is divided by the number of rows. Normalisation by the global count
// happens once, in optimizer_prepare.
//
// Shapes: logits, grad [n, V] or pred, target, grad [n, C], row-major, one dtype (f32, bf16, f64)
//   within a call; targets [n] int32; loss [n] f32 (f64 for f64). grad_scale [n] in the dtype of
//   loss, absent: 1. grad absent: loss only.
// Only the first `*row_count` rows are touched when row_count is given (device memory).
// Aliasing: grad may be logits, pred or target.
// Edges: the target ignored_target (-1) gives loss 0 and gradient 0, whatever the logits hold. Any
//   other target outside [0, V) gives NaN, loss and gradient (whoever builds the batch validates:
//   validate_targets). NaN in a row stays in that row.
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

inline constexpr int32_t ignored_target = -1;

struct CrossEntropyArgs {
  static constexpr const char* op = "cross_entropy";
  TensorView logits;
  const int32_t* targets = nullptr;
  TensorView grad_scale;
  TensorView loss;
  TensorView grad;
  const int32_t* row_count = nullptr;
};

enum class MseReduction : uint8_t { mean, sum };  // over the columns

struct MseArgs {
  static constexpr const char* op = "mse";
  MseReduction reduction = MseReduction::mean;
  TensorView pred;
  TensorView target;
  TensorView grad_scale;
  TensorView loss;
  TensorView grad;
  const int32_t* row_count = nullptr;
};

// Throws InputError naming `what` and the value: a target outside [0, classes) that is not
// ignored_target.
void validate_targets(std::span<const int32_t> targets, int64_t classes, std::string_view what);

std::span<const Variant> cross_entropy_variants();
std::span<const Variant> mse_variants();

}  // namespace rondo
