#include "engine/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/data/features/random.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using data::Purpose;

int32_t bucket_of(int32_t frames) {
  constexpr double ratio = 1.15;
  return static_cast<int32_t>(std::log(std::max(1, frames)) / std::log(ratio));
}

struct Place {
  int32_t rank;   // bucket, or length
  uint64_t tie;   // random, or 0
  int64_t index;  // last resort, so that the order is total
};

bool before(const Place& a, const Place& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  if (a.tie != b.tie) return a.tie < b.tie;
  return a.index < b.index;
}

template <class T>
void shuffle(std::vector<T>& items, data::Random random) {
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
}

// Utterances in the order in which they are drawn: shuffled, those of a class together.
std::vector<int64_t> drawing_order(const Draws& draws, int64_t size, uint64_t seed,
                                   uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, {seed, epoch, 0, Purpose::draw});
  if (draws.classes.empty()) return order;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return draws.classes[static_cast<size_t>(a)] < draws.classes[static_cast<size_t>(b)];
  });
  return order;
}

// Where each utterance of `order` ends on a line as long as the epoch.
std::vector<double> boundaries_by_weight(const Draws& draws, const std::vector<int64_t>& order,
                                         double per_epoch) {
  std::vector<double> ends;
  double sum = 0;
  for (int64_t i : order) {
    const double w = draws.weights[static_cast<size_t>(i)];
    if (!(w >= 0 && w <= greatest_weight)) {
      fail_input("utterance ", i, " (counted from 0) has the weight ", w,
                 ", expected a number from 0 to ", greatest_weight);
    }
    ends.push_back(sum += w);
  }
  if (!(sum > 0)) fail_input("no utterance has a weight above 0");
  for (double& end : ends) {
    end = end == sum ? per_epoch : std::min(end * per_epoch / sum, per_epoch);
  }
  return ends;
}

// Exact but for one rounding, so that equal classes give equal numbers.
std::vector<double> boundaries_by_class(const Draws& draws, const std::vector<int64_t>& order,
                                        double per_epoch) {
  std::vector<int64_t> members;
  for (int32_t c : draws.classes) {
    RONDO_CHECK(c >= 0, "class ", c);
    if (static_cast<size_t>(c) >= members.size()) members.resize(static_cast<size_t>(c) + 1);
    ++members[static_cast<size_t>(c)];
  }
  std::vector<double> ends;
  int32_t current = -1;
  int64_t place = 0;
  for (int64_t i : order) {
    const int32_t c = draws.classes[static_cast<size_t>(i)];
    place = c == current ? place + 1 : 1;
    current = c;
    const int64_t n = members[static_cast<size_t>(c)];
    const auto all = static_cast<double>(static_cast<int64_t>(members.size()) * n);
    const auto until = static_cast<double>(c * n + place);
    ends.push_back(until == all ? per_epoch : per_epoch * until / all);
  }
  return ends;
}

}  // namespace

std::vector<int64_t> draw_epoch(const Draws& draws, int64_t size, uint64_t seed, uint64_t epoch) {
  if (draws.once()) return std::vector<int64_t>(static_cast<size_t>(size), 1);
  const bool weighted = !draws.weights.empty();
  RONDO_CHECK(static_cast<int64_t>(weighted ? draws.weights.size() : draws.classes.size()) == size,
              "weights or classes of other than ", size, " utterances");
  const auto per_epoch = static_cast<double>(draws.per_epoch > 0 ? draws.per_epoch : size);
  const std::vector<int64_t> order = drawing_order(draws, size, seed, epoch);
  const std::vector<double> ends = weighted ? boundaries_by_weight(draws, order, per_epoch)
                                            : boundaries_by_class(draws, order, per_epoch);
  // One point in each unit of the line, all at the same place of theirs.
  const double place = data::Random(seed, epoch, 1, Purpose::draw).uniform();
  std::vector<int64_t> counts(static_cast<size_t>(size));
  double before = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const double points = std::max(0.0, std::ceil(ends[i] - place));
    counts[static_cast<size_t>(order[i])] = static_cast<int64_t>(points - before);
    before = points;
  }
  return counts;
}

std::vector<std::vector<int64_t>> batches_of_epoch(std::span<const int32_t> frames,
                                                   const SamplerConfig& config, uint64_t epoch) {
  return batches_of_epoch(frames, std::vector<int64_t>(frames.size(), 1), config, epoch);
}

std::vector<std::vector<int64_t>> batches_of_epoch(std::span<const int32_t> frames,
                                                   std::span<const int64_t> counts,
                                                   const SamplerConfig& config, uint64_t epoch) {
  if (config.batch_frames < 1)
    fail_input("batch_frames is ", config.batch_frames, ", expected at least 1");
  const bool sorted_epoch = config.sorted_first_epoch && epoch == 0;
  const bool shuffled = config.order == BatchOrder::shuffled && !sorted_epoch;
  std::vector<Place> places;
  places.reserve(frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (counts[i] > 0 && frames[i] > config.batch_frames)
      fail_input("utterance ", index, " (counted from 0) has ", frames[i],
                 " frames, more than batch_frames = ", config.batch_frames);
    data::Random random(config.seed, epoch, static_cast<uint64_t>(index), Purpose::tie);
    for (int64_t n = 0; n < counts[i]; ++n) {
      places.push_back(
          {shuffled ? bucket_of(frames[i]) : frames[i], shuffled ? random.next() : 0, index});
    }
  }
  std::sort(places.begin(), places.end(), before);
  if (config.order == BatchOrder::longest_first && !sorted_epoch)
    std::reverse(places.begin(), places.end());

  std::vector<std::vector<int64_t>> batches;
  int64_t total = 0;
  for (const Place& p : places) {
    const int64_t length = frames[static_cast<size_t>(p.index)];
    const bool full = batches.empty() || total + length > config.batch_frames ||
                      (config.max_sequences > 0 &&
                       static_cast<int64_t>(batches.back().size()) >= config.max_sequences);
    if (full) {
      batches.emplace_back();
      total = 0;
    }
    batches.back().push_back(p.index);
    total += length;
  }
  if (shuffled) shuffle(batches, {config.seed, epoch, 0, Purpose::order});
  return batches;
}

std::vector<int64_t> part_of_batch(std::span<const int64_t> batch,
                                   const std::function<int64_t(int64_t)>& cost, int part,
                                   int parts) {
  RONDO_CHECK(parts >= 1 && part >= 0 && part < parts, "part ", part, " of ", parts);
  std::vector<std::pair<int64_t, int64_t>> order;  // cost, utterance
  order.reserve(batch.size());
  for (int64_t utterance : batch) order.emplace_back(cost(utterance), utterance);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<int64_t> load(static_cast<size_t>(parts));
  std::vector<int64_t> mine;
  for (const auto& [price, utterance] : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += price;
    if (least - load.begin() == part) mine.push_back(utterance);
  }
  return mine;
}

int64_t training_cost(int64_t frames, int64_t labels, int64_t weights) {
  // Measured by checkop --bench on one core: 0.56 ns per cell (ctc, T500 N32 V32 L100) against
  // 0.010 ns per product (lstm, H128 B4) with AVX-512; the ratio is 48 to 56 on all instruction
  // sets.
  constexpr int64_t per_cell = 55;
  return frames * (3 * weights + per_cell * (2 * labels + 1));
}

Sampler::Sampler(int64_t size, std::function<int32_t(int64_t, uint64_t)> frames,
                 const SamplerConfig& config, Draws draws)
    : size_(size), frames_(std::move(frames)), config_(config), draws_(std::move(draws)) {
  if (size < 1) fail_input("there is nothing to make batches of");
}

void Sampler::make_batches(uint64_t epoch) {
  if (made_ && made_epoch_ == epoch) return;
  std::vector<int32_t> lengths(static_cast<size_t>(size_));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = frames_(static_cast<int64_t>(i), epoch);
  batches_ =
      batches_of_epoch(lengths, draw_epoch(draws_, size_, config_.seed, epoch), config_, epoch);
  made_epoch_ = epoch;
  made_ = true;
}

int64_t Sampler::steps(uint64_t epoch) {
  make_batches(epoch);
  return static_cast<int64_t>(batches_.size());
}

void Sampler::seek(uint64_t epoch, int64_t step) {
  RONDO_CHECK(step >= 0 && step <= steps(epoch), "step ", step, " of an epoch of ", steps(epoch));
  epoch_ = epoch;
  step_ = step;
}

BatchRequest Sampler::at(uint64_t epoch, int64_t step) {
  RONDO_CHECK(step >= 0 && step < steps(epoch), "step ", step, " of an epoch of ", steps(epoch));
  return {epoch, step, batches_[static_cast<size_t>(step)]};
}

BatchRequest Sampler::next() {
  if (step_ >= steps(epoch_)) {
    ++epoch_;
    step_ = 0;
  }
  return at(epoch_, step_++);
}

}  // namespace rondo
