#include "engine/steps/sequence.h"

#include <algorithm>

namespace rondo {

SequenceRank::SequenceRank(const Graph& training, ValueId loss, const Context& context,
                           ProcessGroup& group, ShardRanks shards, Parameters& parameters)
    : training_(training),
      loss_(loss),
      context_(context),
      group_(group),
      ranks_(shards),
      parameters_(parameters) {
  make_shards();
}

void SequenceRank::wait_for_timeline(bool waits) {
  timed_ = waits;
  shards_->wait_for_timeline(waits);
}

// The graph of a shard depends on the longest label: it crosses the border in CTC's lattice.
void SequenceRank::make_shards() {
  shards_ = std::make_unique<SequenceShards>(training_, loss_, context_, group_, ranks_.first,
                                             ranks_.count, capacity_.max_label_length);
  shards_->wait_for_timeline(timed_);
}

void SequenceRank::reserve(const BatchCapacity& capacity, size_t micro_batches) {
  if (runner_ && micro_batches_ >= micro_batches && capacity_.holds(capacity)) return;
  context_.stream->synchronize();  // the plans may be running
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

void SequenceRank::run(std::span<const BatchView> micro_batches, CommClock::duration timeout) {
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

}  // namespace rondo
