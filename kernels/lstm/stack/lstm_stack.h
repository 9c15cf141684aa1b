// Several LSTM layers of one direction on top of each other: each reads what the one before wrote.
//
// The numbers are those of the layers' own ops in their order (kernels/lstm/lstm.h); where products
// give a row the same bits whatever rows are beside it, which not every library does, they are the
// same bits. As one op because a layer need not wait for all frames of the one below: `layers` runs
// one after the other, `wavefront` all at once, each some frames behind the one below it (J.
// Appleyard, T. Kocisky, P. Blunsom, "Optimizing Performance of Recurrent Neural Networks on GPUs",
// 2016).
//
// Shapes, dtypes, aliasing, determinism, thread safety: as in lstm.h, for 1 to lstm_stack_layers
// layers of one layout. Forward, layers[l].x is layers[l - 1].y; backward, layers[l - 1].dy is
// layers[l].dx, whose memory is there and means nothing after the call. Layers may differ in
// everything but directions = 1 and run = both; their workspaces stay absent.
// Workspace: at least lstm_stack_workspace_bytes(), 64-byte aligned; its content means nothing
// before or after a call. `ref` needs none.
// Errors: Error for what is against this contract.
#pragma once

#include <vector>

#include "kernels/base/dispatch.h"
#include "kernels/lstm/lstm.h"

namespace rondo {

inline constexpr int lstm_stack_layers = 8;  // at most

struct LstmStackForwardArgs {
  static constexpr const char* op = "lstm_stack_forward";
  std::vector<LstmForwardArgs> layers;  // from the bottom
  TensorView workspace;                 // u8
};

// The weights' gradients need nothing of this: by lstm_weight_grad, layer by layer.
struct LstmStackBackwardArgs {
  static constexpr const char* op = "lstm_stack_backward";
  std::vector<LstmBackwardArgs> layers;  // from the bottom
  TensorView workspace;                  // u8
};

// Bytes of scratch on `context`, forward or backward: an upper bound over all variants of its
// backend.
size_t lstm_stack_workspace_bytes(const Context& context, LstmPhase phase,
                                  std::span<const LstmDims> layers, DType compute,
                                  const PackedCapacity& capacity);

std::span<const Variant> lstm_stack_forward_variants();
std::span<const Variant> lstm_stack_backward_variants();

// Whether a variant of these lists runs layers at once.
bool lstm_stack_layers_at_once(const Variant& variant);

}  // namespace rondo
