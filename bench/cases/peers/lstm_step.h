// What one layer does in a training step: forward, backward and weight gradients, one after the
// other on the same memory. Each has its contract in lstm.h.
//
// As one op because libraries (cuDNN) keep what lies between the three to themselves, so that only
// the whole can be compared and timed; models use the three.
//
// Shapes, dtypes, workspaces: as in the three. backward.gates and .cells are what forward wrote,
// weight_grad.y is forward.y, weight_grad.dgates is backward.dgates, and so on; weight_grad does
// not accumulate. Errors, thread safety, determinism: as the three.
#pragma once

#include "kernels/lstm/lstm.h"

namespace rondo {

struct LstmStepArgs {
  static constexpr const char* op = "lstm_step";
  LstmForwardArgs forward;
  LstmBackwardArgs backward;
  LstmWeightGradArgs weight_grad;
};

std::span<const Variant> lstm_step_variants();

}  // namespace rondo
