// What a node has to do for a batch: what a rule tells the planner.
#pragma once

#include "engine/graph/graph.h"

namespace rondo {

// A batch of `sequences` utterances of `frames` frames each, of a level or of the input.
struct BatchShape {
  double sequences = 0, frames = 0, labels = 0;  // labels per utterance
  // Frames of the longest utterance, where they differ and `frames` is their mean: as many time
  // steps are needed.
  double longest = 0;
  double rows() const { return sequences * frames; }
  double steps() const { return longest > frames ? longest : frames; }
};

// Multiply-adds count as two flops. Recurrent flops are those inside an LSTM's time loop, cells are
// the pointwise work in it, rows x cells x directions; weight bytes are the recurrent weights,
// which CPUs read for every step, and far ones those of a direction whose weights fill the cache.
// For ctc, recurrent flops are lattice cells, cells are frames, and what is exchanged are
// sequences. Bytes are operands, each once.
struct NodeWork {
  double calls = 1, steps = 0, exchanged = 0, flops = 0, recurrent_flops = 0, bytes = 0;
  double cells = 0, weight_bytes = 0, far_weight_bytes = 0;
};

// A rule's answer for a batch of `shape` (of level 0), on a device whose cores have a cache of
// `cache_bytes` each for the recurrent weights.
using WorkFunction = NodeWork (*)(const Graph& graph, const Node& node, const BatchShape& batch,
                                  double cache_bytes);

// Rows, time steps and sequences of a value; its bytes, 0 for no_value.
double rows_of(const Graph& graph, const Shape& shape, const BatchShape& batch);
double steps_of(const Graph& graph, const Shape& shape, const BatchShape& batch);
double sequences_of(const Graph& graph, const Shape& shape, const BatchShape& batch);
double bytes_of(const Graph& graph, ValueId id, const BatchShape& batch);

// The dtype a node computes in, which is that of its first activation.
DType dtype_of(const Graph& graph, const Node& node);

// Ops that move data: their operands, each read or written once.
NodeWork operand_work(const Graph& graph, const Node& node, const BatchShape& batch,
                      double cache_bytes);

}  // namespace rondo
