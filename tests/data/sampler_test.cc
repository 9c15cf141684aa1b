// engine/data/sampler.h: every utterance once per epoch, batches within their budget, pure.
#include "engine/data/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "engine/data/random.h"
#include "kernels/base/error.h"

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
        const auto batches = plan_epoch(frames, c, epoch);
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

TEST_CASE("a plan is a pure function of seed and epoch, and differs between them", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(500, 1);
  SamplerConfig c;
  c.batch_frames = 4000;
  SamplerConfig other = c;
  other.seed = 1;
  CHECK(plan_epoch(frames, c, 4) == plan_epoch(frames, c, 4));
  CHECK(plan_epoch(frames, c, 4) != plan_epoch(frames, c, 5));
  CHECK(plan_epoch(frames, c, 4) != plan_epoch(frames, other, 4));
}

TEST_CASE("batches hold similar lengths and are reasonably full", "[sampler]") {
  const std::vector<int32_t> frames = random_lengths(3000, 2);
  SamplerConfig c;
  c.batch_frames = 8000;
  const auto batches = plan_epoch(frames, c, 1);
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
    for (const auto& b : plan_epoch(frames, c, epoch))
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
      plan_epoch(frames, c, 0),
      Contains("utterance 1") && Contains("101 frames, more than batch_frames = 100"));
  c.batch_frames = 0;
  CHECK_THROWS_WITH(plan_epoch(frames, c, 0), Contains("batch_frames is 0"));
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
      const std::vector<int64_t> mine = shard_batch(batch, length, rank, world);
      seen.insert(mine.begin(), mine.end());
      least = std::min(least, total(mine, frames));
      most = std::max(most, total(mine, frames));
    }
    CHECK(seen == std::multiset<int64_t>(batch.begin(), batch.end()));
    if (world <= 8) CHECK(most - least <= 900);
  }
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
