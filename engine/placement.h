// Which layers of a model go to which pipeline stage.
//
// Layers are runs of the graph's forward nodes, found by their weights, so any model can be cut. A
// cost model (every layer timed on its own) chooses where; a placement that is given wins.
//
// Pure functions but for measure_layers, which computes. InputError for what cannot be cut.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/graph/bound_graph.h"

namespace rondo {

// Forward nodes [begin, end) of a graph that stay together.
struct ModelLayer {
  std::string name;  // the common part of its parameters' names
  size_t begin = 0, end = 0;
};

// The layers of a graph that has no backward nodes yet. A layer begins with a node that has weights
// (or their cast); what follows without weights belongs to it. Layers that a value skips, or that
// share a parameter, are one, so that every cut is between neighbours.
std::vector<ModelLayer> find_layers(const Graph& forward);

// Sets the stages of nodes and values: the first `counts[0]` layers are stage 0, and so on. Call
// append_staged_backward() next.
void place_layers(Graph& forward, const std::vector<ModelLayer>& layers,
                  const std::vector<int>& counts);

// append_backward() for a graph with stages: gradients are summed on the stage that has them.
void append_staged_backward(Graph& graph, ValueId loss);

struct LayerCost {
  // Seconds of one micro-batch.
  double forward = 0, input_backward = 0, weight_backward = 0;
  size_t weights = 0;           // elements
  size_t activation_bytes = 0;  // of one micro-batch
  size_t message_bytes = 0;     // to the next layer
  double seconds() const { return forward + input_backward + weight_backward; }
};

// Times each layer on its own, so that never more than one is in memory: the best of `repeats` runs
// over a batch of zeros of this capacity. `forward` has no stages and no backward nodes.
std::vector<LayerCost> measure_layers(const Graph& forward, ValueId loss, const Context& context,
                                      const BatchCapacity& capacity, int repeats = 2);

struct StageMemory {
  size_t limit = 0;                             // bytes per stage; 0: none
  size_t bytes_per_weight = 0;                  // weight, gradient, optimiser state
  std::function<int(int stage)> micro_batches;  // whose activations a stage stores
};

// How many layers each stage gets: the slowest stage is as fast as can be, and then the stages are
// as even as can be, within the memory. InputError when there are more stages than layers, or when
// no cut fits.
std::vector<int> cut_by_cost(const std::vector<ModelLayer>& layers,
                             const std::vector<LayerCost>& costs, int stages,
                             const StageMemory& memory);

// "3,4,2": layers per stage. InputError, naming `where`, when it does not fit the model.
std::vector<int> parse_placement(const std::string& text, const std::vector<ModelLayer>& layers,
                                 int stages, const std::string& where);
// "lstm0.0 lstm0.1 | output"
std::string describe_placement(const std::vector<ModelLayer>& layers,
                               const std::vector<int>& counts);

}  // namespace rondo
