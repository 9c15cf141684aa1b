// engine/data/sampler.h: every utterance once per epoch, batches within their budget, pure.
#include "engine/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/data/features/random.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

std::vector<int32_t> random_lengths(size_t n, uint64_t seed) {
  data::Random random(seed, 0, 0, data::Purpose::order);
  std::vector<int32_t> out(n);
  for (int32_t& v : out) v = static_cast<int32_t>(1 + random.below(900));
  return out;
}

int64_t total(const std::vector<int64_t>& batch, const std::vector<int32_t>& frames) {
  int64_t sum = 0;
  for (int64_t i : batch) sum += frames[static_cast<size_t>(i)];
  return sum;
}

}  // namespace

TEST_CASE("an epoch covers each utterance once, within the budget", "[sampler]") {
  for (size_t n : {1u, 2u, 37u, 2000u}) {
    const std::vector<int32_t> frames = random_lengths(n, n);
    for (uint64_t epoch : {0u, 1u, 5u}) {
      for (int32_t most : {0, 7}) {
        SamplerConfig c;
        c.seed = 3;
        c.batch_frames = 5000;
        c.max_sequences = most;
        const auto batches = batches_of_epoch(frames, c, epoch);
        std::multiset<int64_t> seen;
        for (const auto& b : batches) {
          CHECK_FALSE(b.empty());
          CHECK(total(b, frames) <= 5000);
          if (most) CHECK(static_cast<int32_t>(b.size()) <= most);
          seen.insert(b.begin(), b.end());
        }
        CHECK(seen.size() == n);
        CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == n);
        CHECK(*seen.rbegin() == static_cast<int64_t>(n) - 1);
      }
    }
  }
}

TEST_CASE("a batch may be full to the last frame and utterance", "[sampler]") {
  using Batches = std::vector<std::vector<int64_t>>;
  SamplerConfig c;
  c.order = BatchOrder::shortest_first;
  c.batch_frames = 10;
  CHECK(batches_of_epoch(std::vector<int32_t>{5, 5, 4, 7, 10}, c, 0) ==
        Batches{{2, 0}, {1}, {3}, {4}});
  CHECK(batches_of_epoch(std::vector<int32_t>{5, 5, 10, 3, 3, 3}, c, 0) ==
        Batches{{3, 4, 5}, {0, 1}, {2}});
  c.max_sequences = 2;
  CHECK(batches_of_epoch(std::vector<int32_t>{1, 1, 1, 1, 1}, c, 0) ==
        Batches{{0, 1}, {2, 3}, {4}});
  c.order = BatchOrder::longest_first;
  CHECK(batches_of_epoch(std::vector<int32_t>{1, 3, 2}, c, 0) == Batches{{1, 2}, {0}});
  // What is not drawn may be of any length; what is drawn twice is there twice.
  CHECK(batches_of_epoch(std::vector<int32_t>{1, 11, 2}, std::vector<int64_t>{2, 0, 1}, c, 0) ==
        Batches{{2, 0}, {0}});
}

TEST_CASE("the order of batches, and what is in them, are new in each epoch", "[sampler]") {
  // A batch of each length: nothing but their order can differ.
  std::vector<int32_t> frames;
  for (int32_t i = 0; i < 12; ++i) frames.push_back(10 << i);
  SamplerConfig c;
  c.batch_frames = 10 << 11;
  c.max_sequences = 1;
  std::set<std::vector<std::vector<int64_t>>> epochs;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) epochs.insert(batches_of_epoch(frames, c, epoch));
  CHECK(epochs.size() == 20);
  // One length: batches hold other utterances each time.
  frames.assign(12, 10);
  c.batch_frames = 40, c.max_sequences = 0;
  std::set<std::multiset<std::set<int64_t>>> contents;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::multiset<std::set<int64_t>> sets;
    for (const auto& b : batches_of_epoch(frames, c, epoch)) sets.insert({b.begin(), b.end()});
    contents.insert(sets);
  }
  CHECK(contents.size() > 10);
}

TEST_CASE("what a step costs is products forward and backward, and cells of the lattice",
          "[sampler]") {
  CHECK(training_cost(10, 0, 100) == 10 * (3 * 100 + 55));
  CHECK(training_cost(7, 4, 1000) == 7 * (3 * 1000 + 55 * 9));
}

TEST_CASE("the batches of an epoch are a pure function of seed and epoch, and differ between them",
          "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(500, 1);
  SamplerConfig c;
  c.batch_frames = 4000;
  SamplerConfig other = c;
  other.seed = 1;
  CHECK(batches_of_epoch(frames, c, 4) == batches_of_epoch(frames, c, 4));
  CHECK(batches_of_epoch(frames, c, 4) != batches_of_epoch(frames, c, 5));
  CHECK(batches_of_epoch(frames, c, 4) != batches_of_epoch(frames, other, 4));
}

TEST_CASE("batches hold similar lengths and are reasonably full", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(3000, 2);
  SamplerConfig c;
  c.batch_frames = 8000;
  const auto batches = batches_of_epoch(frames, c, 1);
  const int64_t all = std::accumulate(frames.begin(), frames.end(), int64_t{0});
  CHECK(static_cast<double>(all) / (8000.0 * static_cast<double>(batches.size())) >= 0.9);
  double ratio = 0;
  for (const auto& b : batches) {
    int32_t longest = 0;
    for (int64_t i : b) longest = std::max(longest, frames[static_cast<size_t>(i)]);
    ratio += static_cast<double>(total(b, frames)) /
             (static_cast<double>(longest) * static_cast<double>(b.size()));
  }
  // The share of a padded batch that would be real frames; random batches would have about 0.55.
  CHECK(ratio / static_cast<double>(batches.size()) >= 0.88);
}

TEST_CASE("sorted orders", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(200, 4);
  SamplerConfig c;
  c.batch_frames = 3000;
  c.sorted_first_epoch = true;
  const auto lengths = [&](uint64_t epoch) {
    std::vector<int32_t> out;
    for (const auto& b : batches_of_epoch(frames, c, epoch))
      for (int64_t i : b) out.push_back(frames[static_cast<size_t>(i)]);
    return out;
  };
  std::vector<int32_t> first = lengths(0), second = lengths(1);
  CHECK(std::is_sorted(first.begin(), first.end()));
  CHECK_FALSE(std::is_sorted(second.begin(), second.end()));
  c.order = BatchOrder::longest_first;
  second = lengths(1);
  CHECK(std::is_sorted(second.rbegin(), second.rend()));
  first = lengths(0);
  CHECK(std::is_sorted(first.begin(), first.end()));
}

TEST_CASE("an utterance that no batch can hold is named", "[sampler]") {
  SamplerConfig c;
  c.batch_frames = 100;
  const std::vector<int32_t> frames = {5, 101};
  CHECK_THROWS_WITH(
      batches_of_epoch(frames, c, 0),
      Contains("utterance 1") && Contains("101 frames, more than batch_frames = 100"));
  c.batch_frames = 0;
  CHECK_THROWS_WITH(batches_of_epoch(frames, c, 0), Contains("batch_frames is 0"));
  CHECK_THROWS_AS(Sampler(
                      0, [](int64_t, uint64_t) { return 1; }, c),
                  InputError);
}

TEST_CASE("ranks share a batch evenly and completely", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(40, 6);
  const auto length = [&](int64_t i) { return int64_t{frames[static_cast<size_t>(i)]}; };
  std::vector<int64_t> batch(40);
  std::iota(batch.begin(), batch.end(), 0);
  for (int world : {1, 2, 3, 8, 64}) {
    std::multiset<int64_t> seen;
    int64_t least = INT64_MAX, most = 0;
    for (int rank = 0; rank < world; ++rank) {
      const std::vector<int64_t> mine = part_of_batch(batch, length, rank, world);
      seen.insert(mine.begin(), mine.end());
      least = std::min(least, total(mine, frames));
      most = std::max(most, total(mine, frames));
    }
    CHECK(seen == std::multiset<int64_t>(batch.begin(), batch.end()));
    if (world <= 8) CHECK(most - least <= 900);
  }
}

TEST_CASE("the costliest go first, to the rank with the least so far", "[sampler]") {
  const std::vector<int64_t> cost = {1, 5, 3, 3, 5, 2};
  const auto of = [&](int rank) {
    return part_of_batch(
        std::vector<int64_t>{0, 1, 2, 3, 4, 5},
        [&](int64_t i) { return cost[static_cast<size_t>(i)]; }, rank, 3);
  };
  // 5 5 3 | then 3 to the third, 2 to the first, 1 to the second.
  CHECK(of(0) == std::vector<int64_t>{1, 5});
  CHECK(of(1) == std::vector<int64_t>{4, 0});
  CHECK(of(2) == std::vector<int64_t>{2, 3});
}

TEST_CASE("a sampler resumes anywhere in any epoch", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(100, 7);
  // Lengths that change between epochs, as speed perturbation makes them.
  const auto length = [&](int64_t i, uint64_t e) {
    return frames[static_cast<size_t>(i)] + static_cast<int32_t>(e);
  };
  SamplerConfig c;
  c.batch_frames = 2000;
  Sampler whole(100, length, c);
  std::vector<BatchRequest> all;
  for (int i = 0; i < 80; ++i) all.push_back(whole.next());
  CHECK(all.back().epoch >= 2);
  for (size_t start : {0u, 1u, 13u, 25u, 30u, 60u}) {
    Sampler resumed(100, length, c);
    resumed.seek(all[start].epoch, all[start].step);
    for (size_t i = start; i < 80; ++i) {
      const BatchRequest r = resumed.next();
      REQUIRE(r.epoch == all[i].epoch);
      REQUIRE(r.step == all[i].step);
      REQUIRE(r.utterances == all[i].utterances);
    }
  }
  Sampler end(100, length, c);
  end.seek(0, end.steps(0));
  CHECK(end.next().epoch == 1);
  CHECK_THROWS_AS(end.seek(0, 10000), Error);
}

namespace {

// Exactly `per_epoch` draws; each number is one of the integers next to its expectation.
void check_numbers(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  for (size_t i = 0; i < counts.size(); ++i) {
    INFO("utterance " << i << ", expected " << expected[i]);
    CHECK(counts[i] >= std::floor(expected[i]));
    CHECK(counts[i] <= std::ceil(expected[i]));
  }
}

}  // namespace

TEST_CASE("weighted draws have the expected frequencies", "[slow][sampler]") {
  // Dyadic weights and a power of two as their sum: nothing is rounded, so the bounds are exact.
  Draws d;
  double sum = 0;
  for (int i = 0; i < 40; ++i) d.weights.push_back(std::ldexp(1 + i % 7, -(i % 5)));
  d.weights.push_back(0);
  for (double w : d.weights) sum += w;
  d.weights.push_back(128 - sum);
  const auto n = static_cast<int64_t>(d.weights.size());
  d.per_epoch = 96;
  std::vector<double> expected;
  for (double w : d.weights) expected.push_back(96 * w / 128);
  std::vector<double> total(d.weights.size());
  const int epochs = 4000;
  for (uint64_t e = 0; e < epochs; ++e) {
    const std::vector<int64_t> counts = draw_epoch(d, n, 7, e);
    CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == 96);
    check_numbers(counts, expected);
    for (size_t i = 0; i < counts.size(); ++i) total[i] += static_cast<double>(counts[i]);
  }
  for (size_t i = 0; i < total.size(); ++i) {
    // Epochs are independent, and a number that is one of two neighbours has a variance of
    // f (1 - f): six standard deviations.
    const double f = expected[i] - std::floor(expected[i]);
    const double sigma = std::sqrt(f * (1 - f) / epochs);
    INFO("utterance " << i << ": " << total[i] / epochs << ", expected " << expected[i]);
    CHECK(std::abs(total[i] / epochs - expected[i]) <= 6 * sigma);
  }
}

TEST_CASE("every class is drawn equally often, and within it every utterance", "[slow][sampler]") {
  Draws d;
  std::vector<int64_t> members = {300, 30, 7, 1};
  for (size_t c = 0; c < members.size(); ++c)
    d.classes.resize(d.classes.size() + static_cast<size_t>(members[c]), static_cast<int32_t>(c));
  const auto n = static_cast<int64_t>(d.classes.size());
  for (int64_t per_epoch : {int64_t{0}, int64_t{100}, int64_t{41}, int64_t{2000}}) {
    d.per_epoch = per_epoch;
    const auto all = static_cast<double>(per_epoch > 0 ? per_epoch : n);
    std::vector<double> expected;
    for (int32_t c : d.classes) {
      expected.push_back(all / 4 / static_cast<double>(members[static_cast<size_t>(c)]));
    }
    std::vector<int64_t> ever(d.classes.size());
    for (uint64_t e = 0; e < 200; ++e) {
      const std::vector<int64_t> counts = draw_epoch(d, n, 3, e);
      check_numbers(counts, expected);
      std::vector<int64_t> of_class(members.size());
      for (size_t i = 0; i < counts.size(); ++i) {
        of_class[static_cast<size_t>(d.classes[i])] += counts[i];
        ever[i] += counts[i];
      }
      check_numbers(of_class, std::vector<double>(4, all / 4));
      CHECK(static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) == all);
    }
    // It is not always the same members that are drawn.
    if (all >= 100) CHECK(*std::min_element(ever.begin(), ever.end()) > 0);
  }
}

TEST_CASE("draws are a pure function of seed and epoch; equal weights draw all once", "[sampler]") {
  Draws d;
  for (int i = 0; i < 300; ++i) d.weights.push_back(0.1 * (1 + i % 10));
  CHECK(draw_epoch(d, 300, 5, 2) == draw_epoch(d, 300, 5, 2));
  CHECK(draw_epoch(d, 300, 5, 2) != draw_epoch(d, 300, 5, 3));
  CHECK(draw_epoch(d, 300, 5, 2) != draw_epoch(d, 300, 6, 2));
  for (double w : {1.0, 0.1, 1e-300, 1e97}) {
    d.weights.assign(300, w);
    const std::vector<int64_t> counts = draw_epoch(d, 300, 5, 2);
    CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == 300);
    if (w == 1) CHECK(counts == std::vector<int64_t>(300, 1));
    CHECK(*std::max_element(counts.begin(), counts.end()) <= 2);
  }
  // Of neighbours in the manifest now one and now another are drawn, both or none of them.
  Draws half;
  half.weights.assign(40, 1);
  half.per_epoch = 20;
  int both = 0;
  for (uint64_t epoch = 0; epoch < 400; ++epoch) {
    const std::vector<int64_t> counts = draw_epoch(half, 40, 5, epoch);
    both += counts[6] == 1 && counts[7] == 1;
  }
  // A fourth, but for each other's place: five standard deviations.
  CHECK(std::abs(both - 97) <= 44);
  d = {};
  for (int i = 0; i < 300; ++i) d.classes.push_back(i % 3);
  CHECK(draw_epoch(d, 300, 5, 2) == std::vector<int64_t>(300, 1));
}

TEST_CASE("a sampler with draws fills its batches with them, and resumes anywhere", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(100, 7);
  const auto length = [&](int64_t i, uint64_t) { return frames[static_cast<size_t>(i)]; };
  SamplerConfig c;
  c.batch_frames = 2000;
  Draws d;
  for (int i = 0; i < 100; ++i) d.weights.push_back(i % 10 == 0 ? 9 : i % 10 == 1 ? 0 : 0.5);
  d.per_epoch = 130;
  Sampler whole(100, length, c, d);
  std::vector<BatchRequest> all;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> counts(100);
    for (int64_t step = 0; step < whole.steps(epoch); ++step) {
      all.push_back(whole.next());
      CHECK(total(all.back().utterances, frames) <= 2000);
      for (int64_t i : all.back().utterances) ++counts[static_cast<size_t>(i)];
    }
    CHECK(counts == draw_epoch(d, 100, c.seed, epoch));
  }
  for (size_t start : {1u, 9u, 25u}) {
    Sampler resumed(100, length, c, d);
    resumed.seek(all[start].epoch, all[start].step);
    for (size_t i = start; i < all.size(); ++i)
      REQUIRE(resumed.next().utterances == all[i].utterances);
  }
}

TEST_CASE("weights that nothing can be drawn by", "[sampler]") {
  Draws d;
  d.weights = {1, -0.5};
  CHECK_THROWS_WITH(draw_epoch(d, 2, 0, 0), Contains("utterance 1") && Contains("weight -0.5"));
  d.weights = {1, std::nan("")};
  CHECK_THROWS_WITH(draw_epoch(d, 2, 0, 0), Contains("utterance 1") && Contains("weight nan"));
  d.weights = {0, 0};
  CHECK_THROWS_WITH(draw_epoch(d, 2, 0, 0), Contains("no utterance has a weight above 0"));
  d.weights = {0};
  CHECK_THROWS_AS(draw_epoch(d, 2, 0, 0), Error);
}
