// Ranks that share each sequence and hold all layers, without an optimiser: what a stage of a
// RankModel does with its graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "engine/steps/step_runner.h"

namespace rondo::test {

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

  // Lays out memory for `micro_batches` batches at a time, of up to `capacity` as a whole. run()
  // does so by itself for what does not fit.
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

inline SequenceRank::SequenceRank(const Graph& training, ValueId loss, const Context& context,
                                  ProcessGroup& group, ShardRanks shards, Parameters& parameters)
    : training_(training),
      loss_(loss),
      context_(context),
      group_(group),
      ranks_(shards),
      parameters_(parameters) {
  make_shards();
}

inline void SequenceRank::wait_for_timeline(bool waits) {
  timed_ = waits;
  shards_->wait_for_timeline(waits);
}

// The graph of a shard depends on the longest label: it crosses the border in CTC's lattice.
inline void SequenceRank::make_shards() {
  shards_ = std::make_unique<SequenceShards>(training_, loss_, context_, group_, ranks_.first,
                                             ranks_.count, capacity_.max_label_length);
  shards_->wait_for_timeline(timed_);
}

inline void SequenceRank::reserve(const BatchCapacity& capacity, size_t micro_batches) {
  if (runner_ && micro_batches_ >= micro_batches && capacity_.holds(capacity)) return;
  context_.stream->synchronize();  // the graphs may be running
  runner_.reset();
  capacity_ = BatchCapacity::merge(capacity_, capacity);
  micro_batches_ = std::max(micro_batches, micro_batches_);
  make_shards();
  const int count = static_cast<int>(micro_batches_);
  runner_ = std::make_unique<StepRunner>(
      graph(), context_, nullptr, woven_schedule({}, count, shards_->ranks()).schedule, parameters_,
      PipelineOptions{}, nullptr, SharedSequences{shards_.get(), true});
  runner_->reserve(shards_->capacity(capacity_));
}

inline void SequenceRank::run(std::span<const BatchView> micro_batches,
                              CommClock::duration timeout) {
  BatchCapacity need = capacity_;
  for (const BatchView& batch : micro_batches) need = BatchCapacity::merge(need, batch.extent());
  reserve(need, micro_batches.size());
  StepHooks hooks;
  hooks.after_node = after_weight_gradient_;
  shards_->start(timeout);
  runner_->run(micro_batches, hooks);
  totals_ = {};
  losses_.assign(micro_batches.size(), {});
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    runner_->add_losses(static_cast<int>(m), totals_, losses_[m]);
  }
  shards_->finish();
}

}  // namespace rondo::test
