// Graphs that see one chunk of every sequence: what a layer carries through time becomes values
// that are written before its node runs and read afterwards.
//
// Of a training graph (with its backward nodes) or one for evaluation. Every recurrent layer gets
// its initial state, and the gradient of its final state, as activations that no node produces; the
// final state and the gradient of the initial one are kept. In the backward pass the weight
// gradients come last, one product per weight once everything else is done: nobody waits for them.
//
// Pure functions on data. Errors: InputError for what cannot be cut in time.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/rules.h"
#include "kernels/pool/pool.h"

namespace rondo {

inline constexpr size_t no_node = static_cast<size_t>(-1);

// States are [directions, N, P] (h) and [directions, N, H] (c). Direction 0 comes from the left,
// direction 1 from the right; their gradients go the other way.
struct RecurrentLayer {
  size_t forward = no_node, backward = no_node;  // nodes; no_node: not in this graph
  int directions = 1;
  ValueId h0 = no_value, c0 = no_value, hn = no_value, cn = no_value;
  ValueId dh0 = no_value, dc0 = no_value, dhn = no_value, dcn = no_value;
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

struct ChunkGraph {
  Graph graph;
  std::vector<RecurrentLayer> layers;  // in the order of their forward nodes
  std::vector<PooledLayer> pools;
  // ctc, by the ops of kernels/ctc/ctc_chunk.h; no_node: the model has none.
  size_t ctc_alpha = no_node, ctc_grad = no_node;
  ValueId alpha_in = no_value, alpha_out = no_value, beta_in = no_value, beta_out = no_value;
  ValueId loss = no_value;
  ValueId logits = no_value;  // what ctc reads
  // Frames of the input per block that may not be divided: a cut is a multiple of it, so that no
  // layer looks across one.
  int32_t block = 1;
};

// The i32 input [N, 1] of whole lengths, in frames of the logits, that a graph with ctc_chunk has.
inline constexpr const char* total_frames_input = "sequence.total_frames";

// Of a training graph whose loss is `loss`, for parts of sequences with all layers.
// `max_label_length`: capacity.
ChunkGraph shard_graph(const Graph& training, ValueId loss, int32_t max_label_length);

// Of the evaluation graph of a ctc model, forward only: the logits are kept. Throws InputError for
// bidirectional layers, which need the end of a recording, and for models that write no text.
ChunkGraph streaming_graph(const Graph& evaluation);

}  // namespace rondo
