// The steps of an update's passes as tasks: when a pipeline's stages, the shards of sequences, or
// both work and send, if every step takes as long as it is said to.
//
// Every rank carries out the list that the engine does (comm/schedule_steps.h): a part of a layer
// that is cut in time waits for the part to its left (its backward direction: to its right), the
// CTC recursion follows the last layer in the same way, both ways, and the backward pass returns
// the other way round; a stage waits for what the stage before or behind it sends. A send leaves
// its message and goes on. For L unidirectional layers and m micro-batches of equal cost, the
// forward passes of p shards take mL + p - 1 of a part's times.
//
// Messages between two ranks in one direction follow each other. One between stages is under way
// for a latency after it was sent, during which the next one may be sent.
#pragma once

#include <optional>
#include <vector>

#include "comm/schedule_timing.h"
#include "engine/plan/machine/machine.h"
#include "engine/plan/stage_costs.h"
#include "engine/plan/timeline.h"

namespace rondo::plan {

struct StepCosts {
  ShardedSchedule schedule;                   // without its exchanges, which the stages have
  std::vector<StageCosts> stages;             // of one shard of one micro-batch
  std::vector<LinkModel> beside = {};         // by shard but the last: to the next one
  std::vector<double> output_bytes = {};      // by stage but the last: what it gives to the next
  std::vector<LinkModel> up = {}, down = {};  // by stage but the last: to the next one, and back
  // By stage: what is left of its gradients' sums, which follows them and delays nothing else.
  std::vector<double> reduce = {};
};

struct StepTasks {
  Work work;
  // By rank (of the schedule, times shards, and shard): its compute resource is so numbered. A
  // task's Task::stage is the layer whose time loop it is, the number of layers for CTC; -1: nodes
  // between exchanges. The other resources are links: resource r is one of rank r % ranks, those to
  // the next shard and the one before come first.
  int ranks = 0;
  // By task: the action that it is a part of, none for what goes from shard to shard. Where
  // micro-batches are woven its stage is the layer of the exchange that is computed or comes next,
  // and messages between shards are sends. Peer p of rank r is rank r % stride + p * stride.
  std::vector<std::optional<Action>> actions = {};
  int stride = 1;
};

// The schedule must be valid (check_steps()).
StepTasks tasks_of(const StepCosts& costs);

// What its ranks do when: for pictures (engine/report/timeline.h). Parts of an action that follow
// each other without a gap are one entry, and parts that take no time none. Messages are sends and
// receives from when their link takes them until they are there. By rank in the order of their
// start.
PipelineTimeline timeline_of(const StepTasks& tasks, const Timeline& timeline);

}  // namespace rondo::plan
