// Sequence shards as tasks: the order in which states travel through shards, layers and
// micro-batches.
//
// Every utterance is cut into as many parts as there are shards. A recurrent layer's part waits for
// the part to its left (its backward direction: to its right), the CTC recursion follows the last
// layer in the same way, both ways, and the backward pass returns the other way round. Of what
// could run, a rank takes backward work first, then the earliest micro-batch's earliest layer;
// weight gradients fill gaps. For L unidirectional layers and m micro-batches of equal cost, the
// forward passes of p shards take mL + p - 1 of a part's times.
#pragma once

#include <functional>
#include <vector>

#include "engine/plan/model_layers.h"
#include "engine/plan/timeline.h"

namespace rondo::plan {

// What one shard of one micro-batch costs, and where it runs.
struct WaveCosts {
  int shards = 1, micro_batches = 1;
  std::vector<ModelLayers::Parts> layers;
  std::vector<int> directions;      // by layer; 0: no recurrence
  std::vector<int> stage_of_layer;  // pipeline stage, from 0
  double alpha = 0, beta = 0;       // seconds of the CTC recursions
  // Seconds to hand over a layer's state to the neighbouring shard, its output to the next stage,
  // and the CTC recursion's state.
  std::vector<double> state_message, output_message;
  double ctc_message = 0;
};

struct Wave {
  Work work;
  // By rank (stage * shards + shard): its compute resource is so numbered.
  int ranks = 0;
};

Wave build_wave(const WaveCosts& costs);

}  // namespace rondo::plan
