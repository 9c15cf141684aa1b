// Ranks whose batches differ hear which of them it is.
#include "engine/parallel/same_batches.h"

#include "comm/in_process/run_ranks.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr int ranks = 5;

// What each rank said at the end of so many updates, the last of which is another one for `odd`.
std::vector<std::string> heard(int odd, int updates) {
  std::vector<std::string> said(ranks);
  run_ranks_and_collect(ranks, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport, {});
    const Ranks all(*group, std::chrono::seconds(60));
    SameBatches batches;
    try {
      for (int step = 1; step <= updates; ++step) {
        const bool differs = step == updates && rank == odd;
        batches.begin(static_cast<uint64_t>(1000 * step + (differs ? 1 : 0)));
        std::vector<double> votes(SameBatches::votes);
        batches.vote(std::span<double, SameBatches::votes>(votes));
        all.sum(votes);
        batches.require(all, std::span<const double, SameBatches::votes>(votes), step);
      }
    } catch (const Error& e) {
      said[static_cast<size_t>(rank)] = e.what();
    }
  });
  return said;
}

}  // namespace

TEST_CASE("a rank whose batch differs is named at that update", "[same_batches]") {
  constexpr int updates = 40;
  for (const std::string& said : heard(-1, updates)) CHECK(said.empty());
  const std::string what = "at step 40 its batch is not that of rank 0";
  for (int odd = 1; odd < ranks; ++odd) {
    const auto said = heard(odd, updates);
    for (int r = 0; r < ranks; ++r) {
      const std::string expected = r == odd ? what : str("rank ", odd, ": ", what);
      CHECK(said[static_cast<size_t>(r)].rfind(expected, 0) == 0);
    }
  }
  // Where it is rank 0, all others differ from it.
  CHECK(heard(0, updates)[1].rfind(what, 0) == 0);
}
