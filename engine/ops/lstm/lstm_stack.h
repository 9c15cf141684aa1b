// Stacks of LSTM layers as one node, where a device runs their layers at once
// (kernels/lstm/stack/lstm_stack.h).
#pragma once

#include "engine/graph/graph.h"
#include "kernels/base/op.h"

namespace rondo {

// Replaces runs of nodes `lstm` of one direction, H and stage, each of which reads what the one
// before wrote, by nodes `lstm_stack` of the same values; and runs of `lstm_backward`, from the
// top, by `lstm_stack_backward`. Either only where a variant that would run on `context` does more
// than one layer after the other. Nodes change their numbers, values keep theirs. To be called when
// the graph is whole, gradients included. Returns how many there are.
int stack_lstm_layers(Graph& graph, const Context& context);
// The same wherever it can be.
int stack_lstm_layers(Graph& graph);

}  // namespace rondo
