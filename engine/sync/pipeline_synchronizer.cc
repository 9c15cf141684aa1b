#include "engine/sync/pipeline_synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

PipelineSynchronizer::PipelineSynchronizer(PipelineTrainer& trainer, const Ranks& world,
                                           int replica, int replicas)
    : trainer_(trainer), world_(world) {
  const int micro_batches = trainer.schedule().micro_batches;
  share_.own = {replica * micro_batches, (replica + 1) * micro_batches};
  share_.shards = replicas * micro_batches;
}

// A rank that has not got its data must not leave the others waiting for its activations.
void PipelineSynchronizer::begin_batch(std::span<const BatchView> shards, bool ready) {
  double failed = ready ? 0 : 1;
  world_.sum({&failed, 1});
  if (failed > 0) throw UpdateWithdrawn();
  shards_ = shards;
}

void PipelineSynchronizer::accumulate(const BatchView&, int shard, bool last) {
  if (shard == share_.own.begin) trainer_.accumulate(shards_, last);
  const auto micro_batch = static_cast<size_t>(shard - share_.own.begin);
  StepResult& result = results_.emplace_back();
  result.losses = trainer_.losses(micro_batch);
}

bool PipelineSynchronizer::apply(const Votes& votes) {
  RONDO_CHECK(!votes.failed, "a rank of a pipeline cannot fail apart from the others");
  results_.push_back(trainer_.update());
  world_.sum(votes.ballot);
  return true;
}

const StepResult& PipelineSynchronizer::collect() {
  RONDO_CHECK(!results_.empty(), "nothing is in flight");
  collected_ = std::move(results_.front());
  results_.pop_front();
  return collected_;
}

}  // namespace rondo
