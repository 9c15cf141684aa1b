// What a graph's nodes have to do for a batch, and how long a device takes for it.
#pragma once

#include <cstdint>

#include "engine/graph/rules.h"
#include "engine/optimizer.h"
#include "engine/plan/machine.h"

namespace rondo::plan {

// A batch of `sequences` utterances of `frames` frames each, of a level or of the input.
struct BatchShape {
  double sequences = 0, frames = 0, labels = 0;  // labels per utterance
  // Frames of the longest utterance, where they differ and `frames` is their mean: as many time
  // steps are needed.
  double longest = 0;
  double rows() const { return sequences * frames; }
  double steps() const { return longest > frames ? longest : frames; }
};

// What the constants of OpCost multiply.
struct NodeWork {
  double calls = 1, steps = 0, exchanged = 0, flops = 0, recurrent_flops = 0, bytes = 0;
  double cells = 0, weight_bytes = 0, far_weight_bytes = 0;
};

// Of node `node` for a batch of `shape` (of level 0), on a device whose cores have a cache of
// `cache_bytes` each for the recurrent weights.
//
// Multiply-adds count as two flops. Recurrent flops are those inside an LSTM's time loop, cells are
// the pointwise work in it, rows x cells x directions; weight bytes are the recurrent weights,
// which CPUs read for every step, and far ones those of a direction whose weights fill the cache.
// For ctc, recurrent flops are lattice cells, cells are frames, and what is exchanged are
// sequences. Bytes are operands, each once.
NodeWork work_of(const Graph& graph, const Node& node, const BatchShape& shape, double cache_bytes);

// Of the batch itself, read from where it was prepared and written to where the graph reads it: the
// entry "load".
NodeWork load_work(const Graph& graph, const BatchShape& shape);

inline double seconds_of(const OpCost& c, const NodeWork& w) {
  return c.call * w.calls + c.step * w.steps + c.exchange * w.exchanged + c.flop * w.flops +
         c.recurrent_flop * w.recurrent_flops + c.byte * w.bytes + c.cell * w.cells +
         c.weight_byte * w.weight_bytes + c.far_weight_byte * w.far_weight_bytes;
}

// The dtype a node computes in, which is that of its first activation.
DType dtype_of(const Graph& graph, const Node& node);

// Reading or writing so many arrays of so many weights: the entry "optimizer".
NodeWork update_work(int64_t weights, int arrays);
// The arrays of the same size that an update reads and writes: gradients that are cleared for it
// and squared for their norm, then those of the step.
int update_arrays(const OptimizerOptions& options);
// Those of the step alone.
int step_arrays(const OptimizerOptions& options);

}  // namespace rondo::plan
