// What the rules of engine/ops/lstm/lstm.cc share with engine/ops/lstm/lstm_stack.cc.
#pragma once

#include "engine/graph/rules.h"
#include "kernels/lstm/lstm.h"

namespace rondo {

LstmDims lstm_dims_of(const Node& node);
// The directions that it computes, where they are computed one at a time.
LstmRun lstm_run_of(const Node& node);

// The arguments of an `lstm` node and of an `lstm_backward` node, but for the workspace.
LstmForwardArgs lstm_forward_args(const Binder& binder, const Node& node);
LstmBackwardArgs lstm_backward_args(const Binder& binder, const Node& node);

}  // namespace rondo
