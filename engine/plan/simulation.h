// When the ranks of a replica compute and send in an update's passes, if every step takes as long
// as it is said to: stages of a pipeline, shards of sequences, or both.
//
// Every rank carries out the list that the engine does (comm/schedule_steps.h): a part of a layer
// that is cut in time waits for the part to its left (its backward direction: to its right), the
// loss follows the last layer in the same way, both ways, and the backward pass returns the other
// way round; a stage waits for what the stage before or behind it sends. A send leaves its message
// and goes on. The result is exact for the durations it is given.
//
// Messages of a rank in one direction follow each other. One between stages is under way for a
// latency after it was sent, during which the next one may be sent.
#pragma once

#include <vector>

#include "comm/schedule_steps.h"
#include "comm/schedule_timing.h"
#include "engine/plan/model_layers.h"

namespace rondo::plan {

// What the steps of a stage cost: its blocks as a row of nodes, in which some have to be given what
// a shard beside them has.
struct StageCosts {
  struct Exchange {
    ShardExchange order;
    int block = 0;                  // the number of blocks: the loss
    double seconds = 0, bytes = 0;  // of one direction
    double before = 0;              // seconds of the nodes between it and the one before it
  };
  std::vector<Exchange> exchanges = {};  // of the forward pass, then of the backward pass
  // Seconds of the nodes behind the last exchange of each pass, and of the weight gradients.
  double after_forward = 0, after_backward = 0, weights = 0;
};

// Of blocks [begin, end) of a model, whose sequences are cut in time, or whole. Half of a cut loss
// comes forward and half on the way back.
StageCosts costs_of_stage(const std::vector<BlockCost>& blocks, int begin, int end, bool cut);

struct StepCosts {
  ShardedSchedule schedule;                   // without its exchanges, which the stages have
  std::vector<StageCosts> stages;             // of one shard of one micro-batch
  std::vector<LinkModel> beside = {};         // by shard but the last: to the next one
  std::vector<double> output_bytes = {};      // by stage but the last: what it gives to the next
  std::vector<LinkModel> up = {}, down = {};  // by stage but the last: to the next one, and back
  // By stage: what is left of its gradients' sums, which follows them and delays nothing else.
  std::vector<double> reduce = {};

  // The schedule with its exchanges.
  ShardedSchedule listed() const;
};

struct StepTimes {
  // By rank (of the schedule, times shards, and shard), in the order of their start. Parts of an
  // action that follow each other without a gap are one entry, and parts that take no time none.
  // Messages are sends and receives from when their link takes them until they are there. Where
  // micro-batches are woven, an action's stage is the block whose time loop is computed or comes
  // next, and messages between shards are drawn, whose peers are shards; otherwise they are not.
  PipelineTimeline timeline;
  double end = 0, computed = 0;   // when all is over, and when all passes are
  double busy = 0, messages = 0;  // seconds of a rank, mean, and of what it sends
};

// Throws Error, naming a step, when ranks would wait for each other for ever.
StepTimes simulate(const StepCosts& costs);

}  // namespace rondo::plan
