// How long a step of the LSTM's time loops is predicted to take on a GPU, and which variant is the
// quickest by that: the default for each shape, decided here alone. Nothing was measured on a GPU;
// a variant that no result stands behind is no default, whatever is predicted of it
// (kernels/lstm/lstm_proven.h).
//
// The figures: machine code for the cluster kernels, the tiles of `fused` and the cells
// (lstm_cycles.h), else the arithmetic of bench/results/lstm-gpu-times.md. They leave out what all
// variants have in common, x W^T before the loop and dx after it.
//
// Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/base/dispatch.h"
#include "kernels/base/gpu/gpu_limits.h"
#include "kernels/lstm/lstm.h"

namespace rondo {

struct LstmLoop {
  LstmPhase phase = LstmPhase::forward;  // not weight_grad, which has no time loop
  LstmDims dims;
  DType compute = DType::bf16;
  int64_t sequences = 1;  // of the capacity
  LstmRun run = LstmRun::both;
};

// Microseconds for a step of all sequences and directions, on a GPU with such limits; nullopt: the
// variant does not take the loop there. `variant`: a name of lstm_conditions; others: Error.
std::optional<double> lstm_predicted_us(std::string_view variant, const LstmLoop& loop,
                                        const GpuLimits& gpu);

struct LstmPrediction {
  std::string_view variant;  // empty: none
  double us = 0;
};

// The quickest of those for which `may_run(name)`; of equals the first in the order of
// lstm_conditions.
LstmPrediction lstm_quickest(const LstmLoop& loop, const GpuLimits& gpu, const MayRun& may_run);

// Layers of one H and direction on top of each other (kernels/lstm/stack/lstm_stack.h), one after
// the other by their quickest time loops, or at once in chunks of `chunk_frames`. Whole passes,
// with x W^T or dx and launches, in microseconds; at_once_us is nullopt where `cluster_split` does
// not take the loop.
struct LstmStackShape {
  LstmPhase phase = LstmPhase::forward;
  int64_t layers = 1, hidden = 0, frames = 0, sequences = 1;
  DType compute = DType::bf16;
  int64_t chunk_frames = 1;
};
struct LstmStackPrediction {
  double in_turn_us = 0;
  std::optional<double> at_once_us;
  bool is_quicker_at_once() const { return at_once_us && *at_once_us < in_turn_us; }
};
LstmStackPrediction lstm_stack_predicted(const LstmStackShape& stack, const GpuLimits& gpu,
                                         const MayRun& may_run);

// As the ops choose (Chooser in kernels/base/dispatch.h): on GPUs the quickest, elsewhere and for
// calls without arguments nothing. In lstm.cc.
std::string_view choose_lstm_forward(const Context& context, const void* args,
                                     const MayRun& may_run);
std::string_view choose_lstm_backward(const Context& context, const void* args,
                                      const MayRun& may_run);

}  // namespace rondo
