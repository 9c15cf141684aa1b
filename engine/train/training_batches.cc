#include "engine/train/training_batches.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

TrainingBatches::TrainingBatches(const Config& config, const ManifestDataset& data, ShardRange own,
                                 int shards, int64_t weights)
    : config_(config),
      data_(data),
      own_(own),
      shards_(shards),
      weights_(weights),
      requests_(make_sampler()),
      positions_(make_sampler()),
      next_shard_(own.end) {}

Sampler TrainingBatches::make_sampler() const {
  SamplerConfig s;
  s.seed = config_.training.seed;
  s.batch_frames = config_.data.batch_frames;
  s.sorted_first_epoch = config_.data.sorta_grad;
  return Sampler(
      data_.size(),
      [this, limit = s.batch_frames](int64_t i, uint64_t e) {
        const int32_t frames = data_.frames(i, e);
        if (frames > limit) {
          fail_input(data_.name(i), ": ", data_.entry(i).path, " has ", frames,
                     " frames, more than data.batch_frames = ", limit);
        }
        return frames;
      },
      s);
}

std::vector<int64_t> TrainingBatches::part(const BatchRequest& batch, int shard) const {
  if (shards_ == 1) return batch.utterances;
  return shard_batch(
      batch.utterances,
      [&](int64_t i) {
        return training_cost(data_.frames(i, batch.epoch), data_.label_count(i), weights_);
      },
      shard, shards_);
}

BatchCapacity TrainingBatches::largest(uint64_t epochs) {
  BatchCapacity capacity;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t step = 0; step < positions_.steps(epoch); ++step) {
      const BatchRequest batch = positions_.at(epoch, step);
      for (int shard = own_.begin; shard < own_.end; ++shard) {
        BatchCapacity c;
        for (int64_t i : part(batch, shard)) {
          const int32_t frames = data_.frames(i, epoch);
          const auto labels = static_cast<int32_t>(data_.label_count(i));
          c.packed.rows += frames;
          c.packed.frames = std::max(c.packed.frames, frames);
          ++c.packed.sequences;
          c.labels += labels;
          c.max_label_length = std::max(c.max_label_length, labels);
        }
        capacity = BatchCapacity::merge(capacity, c);
      }
    }
  }
  return capacity;
}

void TrainingBatches::start(uint64_t epoch, int64_t step) {
  requests_.seek(epoch, step);
  positions_.seek(epoch, step);
  position_ = {epoch, step};
  if (step == positions_.steps(epoch)) position_ = {epoch + 1, 0};
  prefetch_ = std::make_unique<Prefetcher>(
      data_, [this] { return request(); },
      PrefetchOptions{config_.data.prefetch_threads,
                      std::max(config_.data.prefetch_batches, own_.size())});
}

std::optional<BatchRequest> TrainingBatches::request() {
  if (next_shard_ == own_.end) {
    requested_ = requests_.next();
    next_shard_ = own_.begin;
  }
  if (requested_.epoch >= static_cast<uint64_t>(config_.training.epochs)) return std::nullopt;
  BatchRequest shard = requested_;
  shard.utterances = part(requested_, next_shard_++);
  return shard;
}

bool TrainingBatches::next(HostBatch& shard) {
  if (!prefetch_->next(shard)) return false;
  if (++shards_taken_ < own_.size()) return true;
  shards_taken_ = 0;
  if (++position_.step == positions_.steps(position_.epoch)) position_ = {position_.epoch + 1, 0};
  return true;
}

BatchPosition TrainingBatches::last_of_update(int accumulation) {
  const int64_t end = positions_.steps(position_.epoch);
  return {position_.epoch, std::min(position_.step + accumulation, end) - 1};
}

}  // namespace rondo
