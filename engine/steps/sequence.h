// Sequence parallelism: every sequence is cut in time over the ranks, which hold all layers.
//
// Shard s of p computes its frames of every sequence. From the left it gets the state of each
// recurrent layer and, last, CTC's alpha; from the right beta, log p and the gradients of the
// states; what it makes of them it passes on. The second direction of a bidirectional layer walks
// the other way, so that both ends begin at once; in the middle each shard first computes the
// direction whose end is nearer. Weight gradients need no neighbour and come last, one product per
// weight and batch. Micro-batches fill the wave: a shard works at one while others have the next.
// (The wave through time and layers is that of any pipeline; activations per rank are those of its
// frames, which is what sharding is for.)
//
// A pooling over frames is a sum of the shards' parts, which all of them get; what comes behind it
// they all compute, and the first one accounts for it.
//
// The result is that of one rank but for the order of summation in the weight gradients, and CTC's
// arithmetic, which is that of its "wide" variants bit for bit (kernels/ctc/ctc_chunk.h). Dropout
// is keyed by absolute frames. Subsampling never looks across a cut, because cuts are at multiples
// of it. Convolutions do: in front of each, neighbours give one another the frames it reads, and
// behind its gradient those of these frames (HaloLayer in engine/cut/sequence_graph.h).
//
// On any device; what crosses a cut goes by way of the host (engine/steps/shard_borders.h).
// Where the device records work, a part runs with a plan of its bucket (engine/graph/bucket.h), and
// what it computes between two messages, the time loop of a layer say, is one recording; weight
// gradients, few launches each, are not recorded. One thread at a time. Throws InputError for
// models that cannot be cut (engine/cut/sequence_graph.h), CommError when a rank fails.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "engine/steps/step_runner.h"

namespace rondo {

// The ranks of a group that share each sequence: `count` neighbours, of which the first has the
// first shard.
struct ShardRanks {
  int first = 0, count = 1;
};

class SequenceRank {
 public:
  // `training` is a whole training graph with its backward nodes. Borrows all other arguments.
  SequenceRank(const Graph& training, ValueId loss, const Context& context, ProcessGroup& group,
               ShardRanks shards, Parameters& parameters);

  // Plans memory for `micro_batches` batches at a time, of up to `capacity` as a whole. run() does
  // so by itself for what does not fit.
  void reserve(const BatchCapacity& capacity, size_t micro_batches);

  // Forward and backward of all micro-batches, the same on all ranks. This shard's part of the
  // gradients is added to those of the parameters: their sum over the ranks is the gradient.
  void run(std::span<const BatchView> micro_batches, CommClock::duration timeout);

  // The totals of the last run(), to be summed over the ranks. A sequence and its loss count on the
  // first one of the shards.
  const LossTotals& totals() const { return totals_; }
  // The losses of a micro-batch, in the order of its sequences: on the first shard, for losses of
  // sequences (ctc).
  const std::vector<double>& losses(size_t micro_batch) const { return losses_.at(micro_batch); }

  // Called when a node of graph() that makes weight gradients has run for all micro-batches (on
  // devices that queue work: has been enqueued): they
  // are computed weight by weight, so that some are complete while others are still to come.
  using AfterNode = std::function<void(size_t node)>;
  void set_after_weight_gradient(AfterNode after) { after_weight_gradient_ = std::move(after); }
  // What a shard runs.
  const Graph& graph() const { return shards_->chunk().graph; }
  // The timeline of the last run(): SequenceShards::timeline(), and wait_for_timeline().
  const std::vector<TimedAction>& timeline() const { return shards_->timeline(); }
  void wait_for_timeline(bool waits);

  // The bytes of the activations of all micro-batches.
  size_t arena_bytes() const { return runner_ ? runner_->arena_bytes() : 0; }

 private:
  void make_shards();

  const Graph& training_;
  const ValueId loss_;
  const Context context_;
  ProcessGroup& group_;
  const ShardRanks ranks_;
  Parameters& parameters_;

  BatchCapacity capacity_;    // of whole batches
  size_t micro_batches_ = 0;  // most of a run
  std::unique_ptr<SequenceShards> shards_;
  std::unique_ptr<StepRunner> runner_;  // one stage, woven
  bool timed_ = false;
  AfterNode after_weight_gradient_;
  LossTotals totals_;
  std::vector<std::vector<double>> losses_;
};

}  // namespace rondo
