// The batches of a training run, or of each batch the shards of one rank, prepared ahead.
#pragma once

#include <memory>

#include "engine/config/config.h"
#include "engine/data/batch.h"
#include "engine/data/dataset.h"
#include "engine/graph/rules.h"
#include "engine/parallel/invariant_reducer.h"

namespace rondo {

struct BatchPosition {
  uint64_t epoch = 0;
  int64_t step = 0;  // within the epoch
  bool operator==(const BatchPosition&) const = default;
};

// One thread at a time. Throws InputError.
class TrainingBatches {
 public:
  // Of every batch the shards `own` out of `shards`, cut so that each costs about the same to
  // train a model of so many weights. Borrows the arguments.
  TrainingBatches(const Config& config, const ManifestDataset& data, ShardRange own, int shards,
                  int64_t weights);

  int64_t steps(uint64_t epoch) { return positions_.steps(epoch); }
  // That holds any own shard of the first epochs.
  BatchCapacity largest(uint64_t epochs);

  // Begins to prepare batches from there on. Called once.
  void start(uint64_t epoch, int64_t step);
  // The next own shard of the batch at position(), which moves on after the last; false after the
  // last epoch.
  bool next(HostBatch& shard);
  const BatchPosition& position() const { return position_; }
  // The last batch of the update that begins at position() and takes up to so many batches, but
  // none of the next epoch.
  BatchPosition last_of_update(int accumulation);
  double wait_seconds() const { return prefetch_ ? prefetch_->wait_seconds() : 0; }

 private:
  Sampler make_sampler() const;
  std::vector<int64_t> part(const BatchRequest& batch, int shard) const;
  std::optional<BatchRequest> request();

  const Config& config_;
  const ManifestDataset& data_;
  const ShardRange own_;
  const int shards_;
  const int64_t weights_;
  Sampler requests_, positions_;  // what is prepared next; what is computed
  BatchRequest requested_;        // whose shards from next_shard_ on are prepared next
  int next_shard_;
  BatchPosition position_;
  int shards_taken_ = 0;
  std::unique_ptr<Prefetcher> prefetch_;
};

}  // namespace rondo
