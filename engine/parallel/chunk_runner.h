// Runs a ChunkGraph of unidirectional layers over consecutive chunks of a batch on one device: the
// final states of one chunk are the initial states of the next.
//
// Owns the plan, borrows the rest. Sequences keep their places: every chunk lists all of them, in
// the same order, so each chunk must be no longer for a later sequence than for an earlier one. One
// thread at a time.
#pragma once

#include <vector>

#include "engine/graph/plan.h"
#include "engine/parallel/sequence_graph.h"

namespace rondo {

// States at a cut, in host memory: h and c of each layer.
using LayerStates = std::vector<std::vector<std::byte>>;

class ChunkRunner {
 public:
  // Plans memory for chunks of up to `capacity`. The graph must outlive this.
  ChunkRunner(const ChunkGraph& chunk, const Context& context, const BatchCapacity& capacity,
              Parameters& parameters);

  // Forward from `states` (empty: zeros), which become those at the chunk's end.
  void forward(const BatchView& batch, LayerStates& states);
  // After forward() of the same batch: gradients of the weights are added to those of the
  // parameters. `states`: gradients of the final states (empty: zeros), which become those of the
  // initial states.
  void backward(LayerStates& states);

  // Appends the rows of a kept value, as f32.
  void append_floats(ValueId id, std::vector<float>& out) const;
  Plan& plan() { return plan_; }

 private:
  std::vector<ValueId> values(ValueId RecurrentLayer::*h, ValueId RecurrentLayer::*c) const;
  void write(const std::vector<ValueId>& values, const LayerStates& states);
  void read(const std::vector<ValueId>& values, LayerStates& states) const;

  const ChunkGraph& chunk_;
  Plan plan_;
};

}  // namespace rondo
