// The pieces of training on several ranks: sums along a fixed tree, costs, slow ranks.
#include <mutex>
#include <random>

#include "comm/in_process/run_ranks.h"
#include "engine/data/sampler.h"
#include "engine/layers/layers.h"
#include "engine/parallel/slow_ranks.h"
#include "engine/reduce/tree_sums.h"
#include "kernels/totals/totals.h"
#include "tests/catch.h"
#include "tests/rank_check.h"

using namespace rondo;

namespace {

Graph graph_of(int64_t features) {
  Graph g;
  const ValueId x = layers::input_frames(g, "features", features);
  layers::linear(g, x, "out", 3);
  return g;
}

// The tree's definition, written once more.
float tree_sum(const std::vector<float>& leaves, int begin, int end) {
  if (end - begin == 1) return leaves[static_cast<size_t>(begin)];
  const int middle = begin + (end - begin) / 2;
  return tree_sum(leaves, begin, middle) + tree_sum(leaves, middle, end);
}

}  // namespace

TEST_CASE("nodes of the tree within a rank's parts cover them, and are as few as can be") {
  for (int parts = 1; parts <= 17; ++parts) {
    for (int world = 1; world <= parts; ++world) {
      int next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const PartRange own = parts_of_rank(parts, rank, world);
        CHECK(own.begin == next);
        CHECK(own.size() >= parts / world);
        CHECK(own.size() <= parts / world + 1);
        for (const PartRange& node : tree_nodes_within(parts, own)) {
          CHECK(node.begin == next);
          next = node.end;
        }
        CHECK(next == own.end);
      }
      CHECK(next == parts);
    }
  }
  CHECK(tree_nodes_within(8, {0, 8}).size() == 1);
  CHECK(tree_nodes_within(8, {4, 8}) == std::vector<PartRange>{{4, 8}});
  CHECK(tree_nodes_within(8, {3, 7}) == std::vector<PartRange>{{3, 4}, {4, 6}, {6, 7}});
}

TEST_CASE("parts' gradients are summed along the tree, for any number of ranks") {
  const Graph graph = graph_of(7);
  for (int parts : {1, 2, 5, 8}) {
    // Two batches for every part but part 1, which has none.
    std::vector<std::vector<float>> batches;
    std::mt19937 random(static_cast<unsigned>(parts));
    std::normal_distribution<float> value(0, 1);
    const int64_t n = Parameters(graph, cpu_device()).flat_size();
    for (int i = 0; i < 2 * parts; ++i) {
      batches.emplace_back(static_cast<size_t>(n));
      for (float& v : batches.back()) v = value(random);
    }
    std::vector<float> want(static_cast<size_t>(n));
    for (size_t i = 0; i < want.size(); ++i) {
      std::vector<float> leaves;
      for (size_t s = 0; s < static_cast<size_t>(parts); ++s) {
        leaves.push_back(s == 1 ? 0.0f : batches[2 * s][i] + batches[2 * s + 1][i]);
      }
      want[i] = tree_sum(leaves, 0, parts);
    }
    for (int world = 1; world <= parts; ++world) {
      std::mutex mutex;
      run_ranks(world, [&](int rank, Transport& transport) {
        const auto group = make_ring_group(transport);
        Parameters parameters(graph, cpu_device());
        Stream stream = cpu_device().make_stream();
        TreeSums sums(*group, parts, parameters, stream, 1);
        const TensorView g = parameters.gradients();
        for (int repeat = 0; repeat < 2; ++repeat) {  // nothing is left of the update before
          std::fill_n(g.as<float>(), n, 0.0f);
          for (size_t half = 0; half < 2; ++half) {
            for (int s = sums.own().begin; s < sums.own().end; ++s) {
              if (s == 1) continue;
              const auto& batch = batches[2 * static_cast<size_t>(s) + half];
              std::copy(batch.begin(), batch.end(), g.as<float>());
              sums.take(s);
            }
          }
          LossTotals totals{.sequences = rank + 1.0};
          sums.votes()[0] = 10;
          sums.finish(&totals, nullptr);
          const std::lock_guard lock(mutex);
          CHECK(std::equal(want.begin(), want.end(), g.as<float>()));
          CHECK(totals.sequences == world * (world + 1) / 2);
          CHECK(sums.votes()[0] == 10 * world);
        }
      });
    }
  }
}

TEST_CASE("a rank that withdraws ends the update on all ranks, and the next one takes place") {
  const Graph graph = graph_of(5);
  run_ranks(3, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    Parameters parameters(graph, cpu_device());
    GroupSums sums(*group, parameters);
    LossTotals totals{.sequences = 1};
    if (rank == 1) {
      RANK_CHECK_THROWS_AS(sums.withdraw(), UpdateWithdrawn);
    } else {
      RANK_CHECK_THROWS_AS(sums.finish(&totals, nullptr), UpdateWithdrawn);
    }
    totals = {.sequences = 1};
    sums.finish(&totals, nullptr);
    RANK_CHECK(totals.sequences == 3);
  });
}

TEST_CASE("parts of a batch cost the same, counting frames and labels") {
  std::vector<int64_t> batch(60);
  std::vector<int64_t> frames, labels;
  for (int64_t i = 0; i < 60; ++i) {
    batch[static_cast<size_t>(i)] = i;
    frames.push_back(100 + i % 7);
    labels.push_back(i % 2 == 0 ? 90 : 2);
  }
  const auto cost = [&](int64_t i) {
    return training_cost(frames[static_cast<size_t>(i)], labels[static_cast<size_t>(i)], 2000);
  };
  std::vector<int64_t> load;
  for (int part = 0; part < 4; ++part) {
    load.push_back(0);
    for (int64_t i : part_of_batch(batch, cost, part, 4)) load.back() += cost(i);
  }
  const auto [least, most] = std::minmax_element(load.begin(), load.end());
  CHECK(static_cast<double>(*most) / static_cast<double>(*least) < 1.05);
}

TEST_CASE("a slow rank is named after a few updates, and not at every one") {
  SlowRanks slow(3);
  const std::vector<double> none(3);
  // Reading begins, and the sizes of batches are new: whatever these take says nothing.
  for (size_t i = 0; i < SlowRanks::first; ++i) CHECK(slow.add({0.1, 2.5, 0.1}, none, 0) == "");
  for (int i = 0; i < 10; ++i) CHECK(slow.add({0.10, 0.11, 0.13}, none, i) == "");
  std::string said;
  int updates = 0;
  for (; said.empty() && updates < 10; ++updates)
    said = slow.add({0.1, 0.5, 0.1}, none, 10 + updates);
  CHECK(said == "rank 1 is slow: 0.28 s per update, the others 0.11 s");
  CHECK(updates > 1);
  for (int i = 0; i < 20; ++i) CHECK(slow.add({0.1, 0.5, 0.1}, none, 20 + i) == "");
  CHECK(slow.add({0.1, 0.5, 0.1}, {0, 0.1, 0}, 100) ==
        "rank 1 is slow: 0.50 s per update, the others 0.10 s");
  SlowRanks one(1);
  CHECK(one.add({5}, {0}, 0) == "");
  // The texts of so many updates from a time on, a second each.
  const auto said_by = [](SlowRanks& ranks, const std::vector<double>& seconds, size_t count,
                          double now) {
    std::string text;
    for (size_t i = 0; i < count; ++i)
      text += ranks.add(seconds, std::vector<double>(seconds.size()), now + static_cast<double>(i));
    return text;
  };
  // Of two ranks the other one is the measure; exactly twice as long is slow, 20 ms more is needed.
  const auto said_of = [&](const std::vector<double>& seconds) {
    SlowRanks ranks(static_cast<int>(seconds.size()));
    return said_by(ranks, seconds, SlowRanks::first + SlowRanks::window, 0);
  };
  CHECK(said_of({0.25, 0.5}).starts_with("rank 1 is slow: 0.50 s per update, the others 0.25 s"));
  CHECK(said_of({0.5, 0.25}).starts_with("rank 0 is slow"));
  CHECK(said_of({0.25, 0.4375}) == "");
  CHECK(said_of({0.0078125, 0.0234375}) == "");
  CHECK(said_of({1, 1, 1, 1, 3}).starts_with("rank 4 is slow"));
  CHECK(said_of({3, 1, 1, 3, 1}) != "");
  CHECK(said_of({3, 3, 3, 1, 1}) == "");
  // Each rank has a minute of its own.
  SlowRanks three(3);
  CHECK(said_by(three, {0.1, 0.1, 1}, 16, 0).starts_with("rank 2"));   // at 15
  CHECK(said_by(three, {9, 0.1, 0.1}, 10, 20).starts_with("rank 0"));  // between 20 and 29
  CHECK(said_by(three, {9, 0.1, 0.1}, 20, 60) == "");
  CHECK(said_by(three, {9, 0.1, 0.1}, 1, 90).starts_with("rank 0"));
}

TEST_CASE("a single long update makes no rank slow, and one that waits for data is named as such") {
  SlowRanks slow(2);
  for (int i = 0; i < 60; ++i)
    CHECK(slow.add({0.05, i % 10 == 9 ? 3.0 : 0.05}, {0, i % 10 == 9 ? 2.9 : 0}, i) == "");
  std::string said;
  for (int i = 0; said.empty() && i < 20; ++i) said = slow.add({0.05, 0.5}, {0.01, 0.45}, 60 + i);
  CHECK_THAT(said, Catch::Matchers::StartsWith("rank 1 is slow: ") &&
                       Catch::Matchers::EndsWith(" s; it waits for its data"));
}
