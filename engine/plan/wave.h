// Sequence shards as tasks: the order in which states travel through shards, layers and
// micro-batches.
//
// Every utterance is cut into as many parts as there are shards. A recurrent layer's part waits for
// the part to its left (its backward direction: to its right), the CTC recursion follows the last
// layer in the same way, both ways, and the backward pass returns the other way round.
//
// Without a pipeline every shard works in the order in which the engine does, wave_steps() of
// engine/parallel/wave_order.h. For L unidirectional layers and m micro-batches of equal cost, the
// forward passes of p shards take mL + p - 1 of a part's times.
//
// Shards of pipeline stages are not timed in the engine's order: they take of what they could do
// backward work first, then the earliest micro-batch's earliest layer; weight gradients fill gaps.
#pragma once

#include <vector>

#include "engine/plan/machine.h"
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
  // What is handed over at a cut: a layer's state, the CTC recursion's; and what a layer gives to
  // the next stage. Bytes of one shard's part.
  std::vector<double> state_bytes, output_bytes;
  double ctc_bytes = 0;
  std::vector<LinkModel> beside;  // by shard but the last: to the next one
  std::vector<LinkModel> above;   // by stage but the last: to the next one
};

struct Wave {
  Work work;
  // By rank (stage * shards + shard): its compute resource is so numbered.
  int ranks = 0;
};

Wave build_wave(const WaveCosts& costs);

}  // namespace rondo::plan
