// Ranks that hold the stages of a model (pipelines, and replicas of them): a batch's shards are the
// micro-batches of its replicas.
#pragma once

#include <deque>

#include "engine/parallel/pipeline_trainer.h"
#include "engine/sync/synchronizer.h"

namespace rondo {

class PipelineSynchronizer final : public Synchronizer {
 public:
  // Borrows the trainer and the group of `world`, all ranks. `replica` of `replicas` is this
  // rank's.
  PipelineSynchronizer(PipelineTrainer& trainer, const Ranks& world, int replica, int replicas);

  DataShare share() const override { return share_; }
  void reserve(const BatchCapacity& capacity) override { trainer_.reserve(capacity); }
  size_t activation_bytes(const BatchCapacity&) const override {
    return trainer_.memory().activations;
  }
  bool interlocked() const override { return true; }
  void begin_batch(std::span<const BatchView> shards, bool ready) override;
  // The first shard takes all of the batch through the pipeline.
  void accumulate(const BatchView& batch, int shard, bool last) override;
  bool apply(const Votes& votes) override;
  const StepResult& collect() override;

  Sums::Times times() const override { return trainer_.communication(); }
  std::vector<TimedAction> timeline() const override { return trainer_.timeline(); }

 private:
  PipelineTrainer& trainer_;
  const Ranks world_;
  DataShare share_;
  std::span<const BatchView> shards_;
  std::deque<StepResult> results_;
  StepResult collected_;
};

}  // namespace rondo
