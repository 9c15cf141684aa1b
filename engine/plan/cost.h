// What a graph's nodes have to do for a batch, and how long a device takes for it.
#pragma once

#include <cstdint>

#include "engine/graph/rules.h"
#include "engine/plan/machine.h"

namespace rondo::plan {

// A batch of `sequences` utterances of `frames` frames each, of a level or of the input.
struct BatchShape {
  double sequences = 0, frames = 0, labels = 0;  // labels per utterance
  double rows() const { return sequences * frames; }
};

// What the constants of OpCost multiply.
struct NodeWork {
  double calls = 1, steps = 0, exchanged = 0, flops = 0, recurrent_flops = 0, bytes = 0;
};

// Of node `node` for a batch of `shape` (of level 0).
//
// Multiply-adds count as two flops. Recurrent flops are those inside an LSTM's time loop; a step's
// recurrent weights count as bytes, since CPUs read them from their caches for every step. For ctc,
// recurrent flops are lattice cells. Bytes of other ops are their operands, each once.
NodeWork work_of(const Graph& graph, const Node& node, const BatchShape& shape);

inline double seconds_of(const OpCost& c, const NodeWork& w) {
  return c.call * w.calls + c.step * w.steps + c.exchange * w.exchanged + c.flop * w.flops +
         c.recurrent_flop * w.recurrent_flops + c.byte * w.bytes;
}

// The dtype a node computes in, which is that of its first activation.
DType dtype_of(const Graph& graph, const Node& node);

// An optimiser's update of so many weights: the entry "optimizer".
NodeWork update_work(int64_t weights, int arrays);

}  // namespace rondo::plan
