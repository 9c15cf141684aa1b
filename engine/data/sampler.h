// Which utterances make up which batch: a pure function of (seed, epoch, step).
//
// Every utterance occurs exactly once per epoch, unless `draws` asks for other numbers. Utterances
// are shuffled within buckets of similar length (ratio 1.15), the buckets are laid end to end and
// cut into batches that hold at most `batch_frames` frames, and the batches are shuffled. Nothing
// here depends on the number of ranks: a batch is the whole world's, and part_of_batch divides it.
//
// Thread safety: pure functions; a Sampler is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace rondo {

enum class BatchOrder : uint8_t { shuffled, shortest_first, longest_first };

struct SamplerConfig {
  uint64_t seed = 0;
  int64_t batch_frames = 20000;  // most frames of a batch
  int32_t max_sequences = 0;     // most utterances of a batch; 0: no limit
  BatchOrder order = BatchOrder::shuffled;
  bool sorted_first_epoch = false;  // epoch 0 from short to long (SortaGrad)
};

// How often utterances occur in an epoch, for imbalanced data. In expectation utterance i is drawn
//   per_epoch * weight_i / (sum of weights)                    times, with weights;
//   per_epoch / (classes * utterances of its class)            times, with classes.
// Systematic sampling (W. G. Madow, L. H. Madow, "On the theory of systematic sampling, I", Annals
// of Mathematical Statistics 15, 1944), over an order shuffled anew in each epoch, makes the
// expectation exact and the actual number one of the two integers next to it (or equal to it, up to
// the rounding of a sum of weights); the same holds for the number of utterances of a class.
struct Draws {
  std::vector<double> weights;   // by utterance, or
  std::vector<int32_t> classes;  // by utterance, from 0 without gaps; both empty: once each
  int64_t per_epoch = 0;         // 0: as many as there are utterances

  bool once() const { return weights.empty() && classes.empty(); }
};

constexpr double greatest_weight = 1e100;

// How often each of `size` utterances occurs in an epoch: a pure function of its arguments. Throws
// InputError unless the weights are from 0 to greatest_weight and some are above 0.
std::vector<int64_t> draw_epoch(const Draws& draws, int64_t size, uint64_t seed, uint64_t epoch);

// The batches of an epoch, as indices into `frames` (the length of each utterance in this epoch).
// Throws InputError when an utterance alone is longer than batch_frames, or batch_frames < 1.
std::vector<std::vector<int64_t>> batches_of_epoch(std::span<const int32_t> frames,
                                                   const SamplerConfig& config, uint64_t epoch);
// The same for utterances that occur so often each.
std::vector<std::vector<int64_t>> batches_of_epoch(std::span<const int32_t> frames,
                                                   std::span<const int64_t> counts,
                                                   const SamplerConfig& config, uint64_t epoch);

// One of `parts` parts of a batch, of equal cost as far as possible: utterances are dealt,
// costliest first, to the part with the least cost so far. Every utterance goes to exactly one
// part; a part may get none. `cost` of an utterance, in any unit.
std::vector<int64_t> part_of_batch(std::span<const int64_t> batch,
                                   const std::function<int64_t(int64_t)>& cost, int part,
                                   int parts);

// What an utterance costs in a training step of a model of so many weights, in units of one
// multiplication by a weight: the products of each frame, forward and twice backward, and the cells
// of the CTC lattice.
int64_t training_cost(int64_t frames, int64_t labels, int64_t weights);

struct BatchRequest {
  uint64_t epoch = 0;
  int64_t step = 0;  // within the epoch
  std::vector<int64_t> utterances;
};

// Walks through the epochs; seek() to any (epoch, step) to resume there.
class Sampler {
 public:
  // `frames(i, epoch)` for i in [0, size): an utterance's length may differ between epochs (speed).
  Sampler(int64_t size, std::function<int32_t(int64_t, uint64_t)> frames,
          const SamplerConfig& config, Draws draws = {});

  // `step` may equal steps(epoch): the next epoch's first batch comes then.
  void seek(uint64_t epoch, int64_t step);
  uint64_t epoch() const { return epoch_; }
  int64_t step() const { return step_; }
  int64_t steps(uint64_t epoch);

  // The batch at the current position, which advances into the next epoch without end.
  BatchRequest next();
  BatchRequest at(uint64_t epoch, int64_t step);

 private:
  void make_batches(uint64_t epoch);

  int64_t size_;
  std::function<int32_t(int64_t, uint64_t)> frames_;
  SamplerConfig config_;
  Draws draws_;
  uint64_t epoch_ = 0;
  int64_t step_ = 0;
  uint64_t made_epoch_ = 0;
  bool made_ = false;
  std::vector<std::vector<int64_t>> batches_;
};

}  // namespace rondo
