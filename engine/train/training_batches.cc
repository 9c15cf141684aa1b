#include "engine/train/training_batches.h"

#include <algorithm>

#include "engine/train/model/open_sampling.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace rondo {

uint64_t step_seed(const Config& config, const HostBatch& batch) {
  uint64_t z = config.training.seed * 0x9e3779b97f4a7c15ull + batch.epoch * 0xd1342543de82ef95ull +
               static_cast<uint64_t>(batch.step);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  return z ^ (z >> 31);
}

TrainingBatches::TrainingBatches(const Config& config, const ManifestDataset& data,
                                 const DataShare& share, int64_t weights)
    : config_(config),
      data_(data),
      share_(share),
      weights_(weights),
      draws_(open_draws(config, data)),
      requests_(make_sampler()),
      positions_(make_sampler()),
      next_part_(share.own.end) {}

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
                     " frames, more than data.batch_frames = ", limit,
                     "; raise that, or leave such out with data.max_frames=", limit);
        }
        return frames;
      },
      s, draws_);
}

std::vector<int64_t> TrainingBatches::utterances_of(const BatchRequest& batch, int part) const {
  if (share_.parts == 1) return batch.utterances;
  return part_of_batch(
      batch.utterances,
      [&](int64_t i) {
        return training_cost(data_.frames(i, batch.epoch), data_.label_count(i), weights_);
      },
      part, share_.parts);
}

BatchCapacity TrainingBatches::largest(uint64_t epochs) {
  BatchCapacity capacity;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t step = 0; step < positions_.steps(epoch); ++step) {
      include(positions_.at(epoch, step), capacity);
    }
  }
  return capacity;
}

void TrainingBatches::include(const BatchRequest& batch, BatchCapacity& capacity) const {
  for (int part = share_.own.begin; part < share_.own.end; ++part) {
    BatchCapacity c;
    for (int64_t i : utterances_of(batch, part)) {
      const int32_t frames = data_.frames(i, batch.epoch);
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

int64_t TrainingBatches::updates_per_epoch() {
  const int64_t each = int64_t{config_.training.accumulation} * share_.stride;
  return (positions_.steps(0) + each - 1) / each;
}

void TrainingBatches::start(const BatchPosition& position, bool background) {
  position_ = position;
  if (position.step >= positions_.steps(position.epoch)) position_ = {position.epoch + 1, 0};
  ahead_ = position_;
  prefetch_ = std::make_unique<Prefetcher>(
      data_, [this] { return request(); },
      PrefetchOptions{config_.data.prefetch_threads,
                      std::max(config_.data.prefetch_batches, share_.own.size()), background});
}

std::optional<BatchRequest> TrainingBatches::request() {
  if (ahead_.epoch >= static_cast<uint64_t>(config_.training.epochs) &&
      next_part_ == share_.own.end) {
    return std::nullopt;
  }
  if (next_part_ == share_.own.end) {
    const int64_t mine = ahead_.step + share_.index, end = requests_.steps(ahead_.epoch);
    requested_ =
        mine < end ? requests_.at(ahead_.epoch, mine) : BatchRequest{ahead_.epoch, ahead_.step, {}};
    ahead_.step += share_.stride;
    if (ahead_.step >= end) ahead_ = {ahead_.epoch + 1, 0};
    next_part_ = share_.own.begin;
  }
  BatchRequest part = requested_;
  part.utterances = utterances_of(requested_, next_part_++);
  return part;
}

bool TrainingBatches::next(HostBatch& part) { return prefetch_->next(part); }

TrainingBatches::Update TrainingBatches::next_update() {
  const int64_t steps = positions_.steps(position_.epoch);
  const int64_t left = (steps - position_.step + share_.stride - 1) / share_.stride;
  Update u;
  u.batches = static_cast<int>(std::min<int64_t>(config_.training.accumulation, left));
  const int64_t end = std::min(position_.step + int64_t{u.batches} * share_.stride, steps);
  u.begin = position_;
  u.epoch_ends = end == steps;
  u.end =
      u.epoch_ends ? BatchPosition{position_.epoch + 1, 0} : BatchPosition{position_.epoch, end};
  u.epoch =
      static_cast<double>(position_.epoch) + static_cast<double>(end) / static_cast<double>(steps);
  position_ = u.end;
  return u;
}

uint64_t TrainingBatches::content(const Update& update) {
  const uint64_t epoch = update.begin.epoch;
  const int64_t end = update.epoch_ends ? positions_.steps(epoch) : update.end.step;
  uint64_t h = fnv1a_begin;
  for (int64_t step = update.begin.step; step < end; ++step) {
    for (const int64_t i : positions_.at(epoch, step).utterances) {
      h = fnv1a(fnv1a(h, data_.content_hash(i)), static_cast<uint64_t>(data_.frames(i, epoch)));
    }
  }
  return h;
}

}  // namespace rondo
