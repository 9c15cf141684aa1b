// Sequence shards as tasks: the order in which states travel through shards, layers and
// micro-batches.
//
// Every utterance is cut into as many parts as there are shards. A recurrent layer's part waits for
// the part to its left (its backward direction: to its right), the CTC recursion follows the last
// layer in the same way, both ways, and the backward pass returns the other way round.
//
// Every rank works in the order in which the engine does: without a schedule that of wave_steps()
// (engine/parallel/wave_order.h), with the stages of one that of shard_steps()
// (engine/parallel/shard_steps.h). For L unidirectional layers and m micro-batches of equal cost,
// the forward passes of p shards take mL + p - 1 of a part's times.
#pragma once

#include <optional>
#include <vector>

#include "comm/schedule.h"
#include "engine/parallel/wave_order.h"
#include "engine/plan/machine.h"
#include "engine/plan/model_layers.h"
#include "engine/plan/timeline.h"

namespace rondo::plan {

// What one shard of one micro-batch costs, and where it runs.
struct WaveCosts {
  int shards = 1, micro_batches = 1;
  std::vector<ModelLayers::Parts> layers;
  std::vector<int> directions;         // by layer; 0: no recurrence
  double alpha = 0, beta = 0;          // seconds of the CTC recursions
  std::vector<double> state_bytes;     // by layer: what is handed over at a cut
  double ctc_bytes = 0;                // the same of the CTC recursion
  std::vector<LinkModel> beside = {};  // by shard but the last: to the next one

  // The schedule of stages; without any, all layers are one wave.
  PipelineSchedule schedule = {};
  std::vector<int> first_layer = {};          // by stage, and the number of layers
  std::vector<double> output_bytes = {};      // by stage: what a shard gives to the next stage
  std::vector<LinkModel> up = {}, down = {};  // by rank of the schedule: to its neighbours
  std::vector<double> reduce = {};            // by stage: what is left of its gradients' sums
};

struct Wave {
  Work work;
  // By rank (of the schedule, times shards, and shard): its compute resource is so numbered. A
  // task's Task::stage is the layer whose time loop it is, the number of layers for CTC; -1: nodes
  // between exchanges. The other resources are links: resource r is one of rank r % ranks.
  int ranks = 0;
  // By task: the action that it is a part of. With a schedule it is the schedule's, and what goes
  // from shard to shard none; without, its stage is the layer of the exchange that is computed or
  // comes next, and messages between shards are sends. Peer p of rank r is rank
  // r % stride + p * stride.
  std::vector<std::optional<Action>> actions = {};
  int stride = 1;
};

Wave build_wave(const WaveCosts& costs);

}  // namespace rondo::plan
