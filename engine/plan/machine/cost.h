// How long a device takes for what a graph's nodes have to do (engine/graph/work.h), and what lies
// around them.
#pragma once

#include <cstdint>

#include "engine/graph/work.h"
#include "engine/plan/machine/machine.h"
#include "engine/update.h"

namespace rondo::plan {

// What a node has to do for a batch (engine/graph/work.h), as its rule says. Its rule does say:
// require_planned().
NodeWork work_of(const Graph& graph, const Node& node, const BatchShape& batch, double cache_bytes);
// The constants that a node is priced by.
const OpCost& cost_of(const DeviceModel& device, const Graph& graph, const Node& node);
// Throws InputError that names an op whose rule does not say what it does to time, or how much work
// it is.
void require_planned(const Graph& graph);

// The work of the batch itself: it is read from where it was prepared and written to where the
// graph reads it, the entry "load".
NodeWork load_work(const Graph& graph, const BatchShape& shape);

inline double seconds_of(const OpCost& c, const NodeWork& w) {
  return c.call * w.calls + c.step * w.steps + c.exchange * w.exchanged + c.flop * w.flops +
         c.recurrent_flop * w.recurrent_flops + c.byte * w.bytes + c.cell * w.cells +
         c.weight_byte * w.weight_bytes + c.far_weight_byte * w.far_weight_bytes;
}

// Reading or writing so many arrays of so many weights: the entry "optimizer".
NodeWork update_work(int64_t weights, int arrays);
// The arrays of the same size that an update reads and writes: gradients that are cleared for it
// and squared for their norm, then those of the step.
int update_arrays(const OptimizerOptions& options);
// Those of the step alone.
int step_arrays(const OptimizerOptions& options);

}  // namespace rondo::plan
