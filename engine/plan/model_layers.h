// A training graph seen as a row of layers: what a pipeline may be cut between, and what each layer
// costs.
#pragma once

#include <vector>

#include "engine/plan/machine/cost.h"
#include "engine/plan/machine/machine.h"
#include "engine/session.h"

namespace rondo::plan {

// Seconds of a layer for one batch.
struct LayerSeconds {
  double forward = 0, input_backward = 0, weight_backward = 0;
  double backward() const { return input_backward + weight_backward; }
  double total() const { return forward + backward(); }
  LayerSeconds& operator+=(const LayerSeconds& other);
};

// The time loop of a layer's backward pass, which keeps multiprocessors of a GPU from its first
// step to its last.
struct HeldLoop {
  double seconds = 0;
  int multiprocessors = 0;  // 0: there is no such loop
};

struct ModelLayer {
  int directions = 0;  // of its LSTM; 0: no recurrence
  double state = 0;    // values per sequence and direction that pass from a frame to the next
  bool ctc = false;    // holds the CTC loss
  int64_t weights = 0;
  double output_row = 0;  // bytes per row that the next layer reads
  int output_level = 0;
};

// Each LSTM and each linear node begins a layer; what follows belongs to it, what comes before the
// first to the first, as does the batch that is loaded. Nodes of graph() carry their layer's number
// as stage.
class ModelLayers {
 public:
  ModelLayers(const ModelFunction& model, DType compute);

  const Graph& graph() const { return graph_; }
  const std::vector<ModelLayer>& layers() const { return layers_; }
  int64_t weights() const;

  // By layer.
  std::vector<LayerSeconds> seconds(const DeviceModel& device, const BatchShape& batch) const;
  // The same in parts: one direction of the LSTM by itself (of two: as many steps, half of the
  // arithmetic), and everything else. The CTC loss is in neither.
  struct Parts {
    LayerSeconds direction, rest;
  };
  std::vector<Parts> parts(const DeviceModel& device, const BatchShape& batch) const;
  // By layer, on GPUs.
  std::vector<HeldLoop> held_loops(const DeviceModel& device, const BatchShape& batch) const;
  double ctc_seconds(const DeviceModel& device, const BatchShape& batch) const;

  // The graph with layers first[s] to first[s + 1] - 1 as stage s.
  Graph staged(const std::vector<int>& first) const;

 private:
  void number_layers();
  void describe_layers();
  double load_seconds(const DeviceModel& device, const BatchShape& batch) const;
  Graph graph_;
  std::vector<ModelLayer> layers_;
};

// Cuts layers into `stages` runs, so that the longest takes as little as possible. Returns the
// first layer of each, and their number at the end.
std::vector<int> cut_evenly(const std::vector<double>& seconds, int stages);

}  // namespace rondo::plan
