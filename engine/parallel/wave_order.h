// In which order a shard of sequences works: what SequenceRank carries out and the planner
// simulates. A pure function.
//
// A step's nodes are a row, in which some have to be given what a neighbour has (exchanges): a
// recurrent layer's time loop its state, CTC's recursions theirs, and their gradients on the way
// back; or are met at by all shards: poolings, and the halos of convolutions. Between two of them
// are nodes that need nobody. Micro-batches are carried out one after the other at every exchange,
// so that a neighbour can begin with the first while this shard computes the second. Weight
// gradients come last.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

struct WaveExchange {
  int directions = 1;     // of a recurrent layer
  bool backward = false;  // direction 0 comes from the right
  bool pooled = false;    // a sum over all shards, or a share of its gradient: has no direction
  bool halo = false;      // pooled: neighbours' frames, or their gradients, waited for as well
  bool operator==(const WaveExchange&) const = default;
};

// The one of two directions that a shard computes first: the one whose end is nearer.
int early_direction(const WaveExchange& exchange, int shard, int shards);

// The shard whose state a direction begins with, and the one that gets what it ends with; -1: there
// is none, it is at an end of the sequence.
int shard_before(const WaveExchange& exchange, int direction, int shard, int shards);
int shard_after(const WaveExchange& exchange, int direction, int shard, int shards);

struct WaveStep {
  enum class Kind : uint8_t {
    nodes,     // of a micro-batch, those before exchange `exchange`; all: before the weights'
    exchange,  // one direction of it for one micro-batch
    pooled,    // all micro-batches of one that has no direction
    weight_gradients,  // of a micro-batch
  };
  Kind kind = Kind::nodes;
  int exchange = 0, micro_batch = 0, direction = 0;
  bool operator==(const WaveStep&) const = default;
};

std::vector<WaveStep> wave_steps(std::span<const WaveExchange> exchanges, int micro_batches,
                                 int shard, int shards);

}  // namespace rondo
