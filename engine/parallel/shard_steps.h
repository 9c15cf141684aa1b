// In which order the ranks of a pipeline work whose stages share each sequence: what StageShards
// carries out and the planner simulates. Pure functions.
//
// A stage is as many ranks as sequences have shards, each with its part of every micro-batch. All
// of them carry out the actions of their stage's rank in the pipeline's schedule (comm/schedule.h);
// messages between stages go from a shard to the same shard. Within a forward or backward action
// the stage's nodes are a row, as in wave_order.h, with exchanges between them; of two directions a
// shard computes the one first whose end is nearer. Receives from other shards are posted one
// computation ahead of the one that waits for them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/schedule.h"
#include "engine/parallel/wave_order.h"

namespace rondo {

// The exchanges of a stage, in the order of its nodes: those of its forward, then of its backward
// pass.
using StageExchanges = std::vector<WaveExchange>;

struct ShardStep {
  enum class Kind : uint8_t {
    action,    // one of the schedule's own: a message between stages, a reduction
    expect,    // posts the receive that an exchange of a computation waits for
    nodes,     // of a computation: those before exchange `exchange`, or after the last
    exchange,  // one direction of it; of a pooling, all
  };
  Kind kind = Kind::action;
  Action action = {};          // itself, or the computation that this is a part of
  int exchange = no_exchange;  // of action.stage
  int direction = 0;
  bool operator==(const ShardStep&) const = default;

  static constexpr int no_exchange = -1;
};
// "exchange 2 direction 1 of forward stage 0 micro-batch 3"
std::string describe(const ShardStep& step);

// `exchanges`: by stage. Of rank `rank` of the schedule and shard `shard` of `shards`.
std::vector<ShardStep> shard_steps(const PipelineSchedule& schedule,
                                   std::span<const StageExchanges> exchanges, int rank, int shard,
                                   int shards);

// What is wrong with the lists of all ranks; empty when they are right. By rank of the schedule
// times `shards`, and shard. They must be
//   * complete and ordered as check_schedule() (comm/schedule.h) says of each shard's actions;
//     every computation has each of its stage's exchanges once per direction, between the nodes
//     before and behind it, and is not interrupted by another;
//   * posted: every state that arrives has been expected once, before its exchange;
//   * free of deadlock when messages between stages block both ends until they meet, and a state
//     blocks its sender until it is expected.
std::vector<std::string> check_shard_steps(const PipelineSchedule& schedule,
                                           std::span<const StageExchanges> exchanges, int shards,
                                           const std::vector<std::vector<ShardStep>>& lists);

}  // namespace rondo
