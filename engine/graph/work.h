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

// Bytes are those of the operands, each once; a multiply-add is two operations. Where a frame has
// to wait for the one before it, `steps` says how many wait for each other, and `step_bytes` what
// is read again for each of them, of all steps.
struct NodeWork {
  double launches = 1, steps = 0, operations = 0, bytes = 0, step_bytes = 0;
};

// A rule's answer for a batch of `shape` (of level 0).
using WorkFunction = NodeWork (*)(const Graph& graph, const Node& node, const BatchShape& batch);

// Rows and time steps of a value; its bytes, 0 for no_value.
double rows_of(const Graph& graph, const Shape& shape, const BatchShape& batch);
double steps_of(const Graph& graph, const Shape& shape, const BatchShape& batch);
double bytes_of(const Graph& graph, ValueId id, const BatchShape& batch);

// The dtype a node computes in, which is that of its first activation.
DType dtype_of(const Graph& graph, const Node& node);

// Ops that move data: their operands, each read or written once.
NodeWork operand_work(const Graph& graph, const Node& node, const BatchShape& batch);

}  // namespace rondo
