// What the variants of the LSTM ops share; for kernels/lstm alone.
#pragma once

#include "kernels/lstm/lstm.h"

namespace rondo {

void lstm_forward_ref(const Context& context, const LstmForwardArgs& args);
void lstm_int8_ref(const LstmForwardArgs& args);
void lstm_backward_ref(const Context& context, const LstmBackwardArgs& args);
void lstm_weight_grad_ref(const Context& context, const LstmWeightGradArgs& args);

// Throw Error unless every view has the shape and dtype kernels/lstm/lstm.h asks for.
void check_lstm(const LstmForwardArgs& args);
void check_lstm(const LstmBackwardArgs& args);
void check_lstm(const LstmWeightGradArgs& args);

// The dtype of b, cells and c for a compute dtype.
constexpr DType lstm_state_dtype(DType compute) {
  return compute == DType::f64 ? DType::f64 : DType::f32;
}

// The directions [begin, end) that a call computes.
constexpr int lstm_first_direction(LstmRun run) { return run == LstmRun::second ? 1 : 0; }
constexpr int lstm_end_direction(const LstmDims& dims, LstmRun run) {
  return run == LstmRun::first ? 1 : dims.directions;
}

// Frame that direction d reads at `step` of a batch of `frames`.
[[gnu::always_inline]] inline int64_t lstm_frame(int d, int64_t step, int64_t frames) {
  return d == 0 ? step : frames - 1 - step;
}

}  // namespace rondo
