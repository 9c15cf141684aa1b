// What the steps of a stage cost (comm/schedule_steps.h): its layers as a row of nodes, in which
// some have to be given what a shard beside them has.
#pragma once

#include <vector>

#include "comm/schedule_steps.h"
#include "engine/plan/model_layers.h"

namespace rondo::plan {

struct StageCosts {
  struct Exchange {
    ShardExchange order;
    int layer = 0;                  // the number of layers: CTC
    double seconds = 0, bytes = 0;  // of one direction
    double before = 0;              // seconds of the nodes between it and the one before it
  };
  std::vector<Exchange> exchanges = {};  // of the forward pass, then of the backward pass
  // Seconds of the nodes behind the last exchange of each pass, and of the weight gradients.
  double after_forward = 0, after_backward = 0, weights = 0;

  StageExchanges order() const;
};

// Layers that nobody shares.
StageCosts costs_of_passes(const LayerSeconds& layers);

// What one shard of one micro-batch costs.
struct ShardCosts {
  std::vector<ModelLayers::Parts> layers;
  std::vector<int> directions;      // by layer; 0: no recurrence
  double alpha = 0, beta = 0;       // seconds of the CTC recursions
  std::vector<double> state_bytes;  // by layer: what is handed over at a cut
  double ctc_bytes = 0;             // the same of the CTC recursion

  // The time of all weight gradients of a layer.
  double weights(size_t layer) const;
  // Layers [begin, end). The last layer is followed by CTC's recursions.
  StageCosts of_layers(int begin, int end) const;
};

}  // namespace rondo::plan
