// What each rank does in the passes of an update, step by step: a schedule's actions
// (comm/schedule.h), whose computations are taken apart where the ranks that share every sequence
// need something of each other. The engine carries out these lists, the planner simulates them,
// and tests prove them. Pure functions.
//
// A stage is as many ranks as sequences have shards, each with its part of every micro-batch. All
// of them carry out the actions of their stage's rank; messages between stages go from a shard to
// the same shard. The nodes of a stage's forward or backward pass are a row, in which some have to
// be given what a neighbour has (exchanges): a recurrent layer's time loop its state, CTC's
// recursions theirs, and their gradients on the way back. Shards meet at others: poolings, and the
// halos of convolutions. Between two of them are nodes that need nobody. A schedule of one stage
// without exchanges is a model on one rank.
//
// Micro-batches that follow each other in the same kind of pass may be woven: each exchange is
// carried out for one after the other, so that a neighbour can begin with the first while this
// shard computes the second. Where layers run in both directions that keeps more than two shards
// busy. Otherwise a pass over a micro-batch is not interrupted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule.h"

namespace rondo {

struct ShardExchange {
  int directions = 1;     // of a recurrent layer
  bool backward = false;  // direction 0 comes from the right
  bool meets = false;     // no direction: a sum over all shards, or a share of its gradient
  bool halo = false;      // meets: neighbours' frames, or their gradients, waited for as well
  bool operator==(const ShardExchange&) const = default;
};
// The exchanges of a stage, in the order of its nodes: those of its forward, then of its backward
// pass.
using StageExchanges = std::vector<ShardExchange>;

// The one of two directions that a shard computes first: the one whose end is nearer.
int early_direction(const ShardExchange& exchange, int shard, int shards);

// The shard whose state a direction begins with, and the one that gets what it ends with; -1: there
// is none, it is at an end of the sequence.
int shard_before(const ShardExchange& exchange, int direction, int shard, int shards);
int shard_after(const ShardExchange& exchange, int direction, int shard, int shards);

struct ShardedSchedule {
  PipelineSchedule schedule;
  std::vector<StageExchanges> exchanges = {};  // by stage; empty: stages have none
  int shards = 1;                              // ranks per stage
  bool woven = false;

  int ranks() const { return schedule.stages() * shards; }
  const StageExchanges& of(int stage) const;
};
// One stage that weaves so many micro-batches: all forward, then all backward, then the gradients
// of the weights, which are then reduced.
ShardedSchedule woven_schedule(const StageExchanges& exchanges, int micro_batches, int shards);

struct Step {
  enum class Kind : uint8_t {
    action,    // one of the schedule's own: a message between stages, a reduction
    expect,    // posts the receive that an exchange of a computation waits for
    nodes,     // of a computation: those before exchange `exchange`, or after the last
    offer,     // where shards meet: what others need of this one is computed and sent
    exchange,  // one direction of it; where shards meet, what they need is waited for
    weights,   // of all micro-batches (action.micro_batch is -1), weight by weight
  };
  Kind kind = Kind::action;
  Action action = {};          // itself, or the computation that this is a part of
  int exchange = no_exchange;  // of action.stage
  int direction = 0;
  bool operator==(const Step&) const = default;

  static constexpr int no_exchange = -1;
};
// "exchange 2 direction 1 of forward stage 0 micro-batch 3"
std::string describe(const Step& step);

// The steps of shard `shard` of stage `stage`. Receives from other shards are posted
// one computation ahead of the one that waits for them; where micro-batches are woven one exchange
// of all of them.
std::vector<Step> rank_steps(const ShardedSchedule& schedule, int stage, int shard);
// The lists of all ranks: by stage, times shards, and shard.
std::vector<std::vector<Step>> all_steps(const ShardedSchedule& schedule);

}  // namespace rondo
