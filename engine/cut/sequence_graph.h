// Graphs that see one chunk of every sequence: what a layer carries through time becomes values
// that are written before its node runs and read afterwards.
//
// A training graph (with its backward nodes) is cut, or one for evaluation. Every recurrent layer
// gets its initial state, and the gradient of its final state, as activations that no node
// produces; the final state and the gradient of the initial one are kept. In the backward pass the
// weight gradients come last, one product per weight once everything else is done: nobody waits for
// them.
//
// What an op does to time is its rule's to say (engine/graph/time_rule.h). Pure functions on data.
// Errors: InputError for what cannot be cut in time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/rules.h"
#include "kernels/pool/pool.h"

namespace rondo {

inline constexpr size_t no_node = static_cast<size_t>(-1);

// States are [directions, N, columns]: of an LSTM h and c. Direction 0 comes from the left,
// direction 1 from the right; their gradients go the other way.
struct RecurrentLayer {
  size_t forward = no_node, backward = no_node;  // nodes; no_node: not in this graph
  int directions = 1;
  std::vector<ValueId> initial, final;                    // a value per state
  std::vector<ValueId> initial_gradient, final_gradient;  // empty without a backward node
};

// A pooling over frames, whose result needs all parts of a sequence: `partial` is that of the part,
// `whole` is what the nodes behind it read, and no node produces. Backward, `gradient` is with
// respect to the whole, and `share`, which no node produces, the part's share of it.
struct PooledLayer {
  size_t forward = no_node, backward = no_node;
  Pooling pooling = Pooling::mean;
  int level = 0;
  ValueId partial = no_value, whole = no_value;
  ValueId gradient = no_value, share = no_value;
};

// A convolution over frames, which needs those of its neighbours (its halo). What lies before a
// part are its last frames, `tail`, to the part on its right, and the first ones, `head`, to the
// part on its left: nodes of their own, `edges`, make them before the convolution runs. Backward
// come the gradients with respect to `before` and `after`, and `edges_grad` adds to the gradient of
// the input those that come from the neighbours.
//
// A tail is of what lies before the part too, where the part is shorter: parts one after the other
// need not be as long as a halo, those that are computed at the same time must be.
// Values are [frames, N, columns]; no_value: of no frames.
struct HaloLayer {
  std::string name;             // of the layer: that of its weights without the last part
  int level = 0;                // of its input
  int32_t left = 0, right = 0;  // frames of that level
  size_t edges = no_node, edges_grad = no_node;
  ValueId before = no_value, after = no_value, tail = no_value, head = no_value;
  // The gradients of the part alone, which are what its neighbours get.
  ValueId dbefore = no_value, dafter = no_value;
  ValueId dtail = no_value, dhead = no_value;
  ValueId dx = no_value;  // the gradient of the input, with what came from the neighbours
  // With what the tail's gradient has for the frames before the part.
  ValueId dbefore_all = no_value;
};

struct ChunkGraph {
  Graph graph;
  std::vector<RecurrentLayer> layers;  // in the order of their forward nodes
  std::vector<PooledLayer> pools;
  std::vector<HaloLayer> halos;  // in the order of their forward nodes
  // ctc, by the ops of kernels/ctc/ctc_chunk.h; no_node: the model has none.
  size_t ctc_alpha = no_node, ctc_grad = no_node;
  ValueId alpha_in = no_value, alpha_out = no_value, beta_in = no_value, beta_out = no_value;
  ValueId loss = no_value;
  ValueId logits = no_value;  // what ctc reads
  // Frames of the input per block that may not be divided: a cut is a multiple of it, so that no
  // layer looks across one.
  int32_t block = 1;
  // So many blocks a part that is computed beside others must have, if it has any: the halos' most.
  int32_t least_blocks = 1;
};

// Why a graph's sequences cannot be cut at all; empty: they can. Both functions below
// throw InputError with it.
std::string objection_to_cuts(const Graph& graph);

// Cuts a training graph whose loss is `loss`, for parts of sequences with all layers.
// `max_label_length`: capacity.
ChunkGraph shard_graph(const Graph& training, ValueId loss, int32_t max_label_length);

// Cuts the evaluation graph of a ctc model, forward only: the logits are kept. Throws InputError
// for bidirectional layers, which need the end of a recording, for convolutions that look ahead,
// and for models that write no text.
ChunkGraph streaming_graph(const Graph& evaluation);

}  // namespace rondo
