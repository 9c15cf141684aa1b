// The batches of a training run, or the share of them that one rank takes, prepared ahead.
#pragma once

#include <memory>

#include "engine/config/config.h"
#include "engine/data/batch.h"
#include "engine/data/dataset.h"
#include "engine/graph/rules.h"
#include "engine/rank_model.h"

namespace rondo {

// A batch of the whole world, which is the same on all ranks and for any number of them.
struct BatchPosition {
  uint64_t epoch = 0;
  int64_t step = 0;  // within the epoch
  bool operator==(const BatchPosition&) const = default;
};

// Dropout's key: of the batch, not of the clock.
uint64_t step_seed(const Config& config, const HostBatch& batch);

// One thread at a time. Throws InputError.
class TrainingBatches {
 public:
  // Parts are cut so that each costs about the same to train a model of so many weights. Borrows
  // config and data.
  TrainingBatches(const Config& config, const ManifestDataset& data, const DataShare& share,
                  int64_t weights);

  // That holds anything of this rank's share of the first epochs.
  BatchCapacity largest(uint64_t epochs);
  int64_t updates_per_epoch();

  // Begins to prepare batches from there on; `background`: with the lowest priority, where cores
  // have other work. Called once.
  void start(const BatchPosition& position, bool background);
  // This rank's next part, or batch. Where a stride leaves it nothing, a batch without sequences,
  // so that all ranks make the same number of calls. False after the last epoch.
  bool next(HostBatch& part);

  // The update that begins now takes so many batches of this rank (each of all own parts), but
  // none of the next epoch.
  struct Update {
    int batches = 0;
    BatchPosition begin;
    BatchPosition end;  // the first batch after it; of the next epoch if this one ends with it
    bool epoch_ends = false;
    double epoch = 0;  // epochs done after it
  };
  Update next_update();
  // A hash of the lengths, labels and other targets of all its utterances, on all ranks.
  uint64_t content(const Update& update);
  double wait_seconds() const { return prefetch_ ? prefetch_->wait_seconds() : 0; }

 private:
  Sampler make_sampler() const;
  std::vector<int64_t> utterances_of(const BatchRequest& batch, int part) const;
  std::optional<BatchRequest> request();
  void include(const BatchRequest& batch, BatchCapacity& capacity) const;

  const Config& config_;
  const ManifestDataset& data_;
  const DataShare share_;
  const int64_t weights_;
  const Draws draws_;
  Sampler requests_, positions_;  // what is prepared next; what is computed
  BatchPosition ahead_;           // of the batches prepared after `requested_`
  BatchRequest requested_;        // whose parts from next_part_ on are prepared next
  int next_part_;
  BatchPosition position_;  // of the next update
  std::unique_ptr<Prefetcher> prefetch_;
};

}  // namespace rondo
