// What the portable GPU variants of the LSTM ops share with their tables; for kernels/lstm alone.
#pragma once

#include "kernels/lstm/lstm.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_GPU(lstm_forward_gpu, LstmForwardArgs);
RONDO_DECLARE_GPU(lstm_backward_gpu, LstmBackwardArgs);
RONDO_DECLARE_GPU(lstm_weight_grad_gpu, LstmWeightGradArgs);

inline DType lstm_compute_dtype(const LstmForwardArgs& a) { return a.x.dtype; }
inline DType lstm_compute_dtype(const LstmBackwardArgs& a) { return a.dy.dtype; }
inline DType lstm_compute_dtype(const LstmWeightGradArgs& a) { return a.x.dtype; }

// GPUs take f32 and bf16.
template <class Args>
bool lstm_gpu_accepts(const Context&, const void* args) {
  return !args || lstm_compute_dtype(*static_cast<const Args*>(args)) != DType::f64;
}

// forward: c and the cells' output per sequence; backward: dc and dh per sequence.
inline size_t lstm_gpu_workspace_bytes(LstmPhase phase, const LstmDims& dims,
                                       const PackedCapacity& capacity) {
  const int64_t states = int64_t{dims.directions} * capacity.sequences;
  int64_t floats = 0;
  if (phase == LstmPhase::forward) floats = states * 2 * dims.hidden;
  if (phase == LstmPhase::backward) floats = states * (dims.hidden + dims.output());
  return static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace rondo
