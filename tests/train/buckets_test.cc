// Gradient buckets: made from the graph, launched as the backward pass goes, the same bits.
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "comm/in_process/run_ranks.h"
#include "engine/reduce/bucket_sums.h"
#include "engine/session.h"
#include "kernels/totals/totals.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/engine/gradient_check.h"
#include "tests/rank_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::linear(g, x, "in", 20);
  x = layers::layer_norm(g, x, "norm");
  x = layers::lstm(g, x, "lower", {.hidden = 16, .bidirectional = true});
  x = layers::lstm(g, x, "upper", {.hidden = 12});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

Graph training_graph() {
  Graph g;
  const Outputs o = model(g);
  append_backward(g, o.loss);
  return g;
}

// Does nothing but remember when it was asked to.
class NotedGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Work all_reduce(const TensorView& data, Reduction, Limit) override {
    reduced.push_back(data.numel());
    return Work::nothing_to_do();
  }
  Work broadcast(const TensorView&, int, Limit) override { return Work::nothing_to_do(); }
  Work reduce_scatter(const TensorView& data, Reduction, Limit) override {
    reduced.push_back(data.numel());
    return Work::nothing_to_do();
  }
  Work all_gather(const TensorView&, Limit) override { return Work::nothing_to_do(); }
  Work barrier(Limit) override { return Work::nothing_to_do(); }
  Work send(int, uint32_t, std::span<const std::byte>, Limit) override { return {}; }
  Work recv(int, uint32_t, std::span<std::byte>, Limit) override { return {}; }
  void abort(const std::string&) noexcept override {}

  std::vector<int64_t> reduced;
};

}  // namespace

TEST_CASE("buckets cover the gradients in the order in which they are finished", "[buckets]") {
  const Graph graph = training_graph();
  Parameters parameters(graph, cpu_device());
  parameters.initialize(3);
  for (int64_t size : {1, 300, 1000, 100000}) {
    const auto buckets = gradient_buckets(graph, parameters, size / 4, size);
    std::vector<int> covered(static_cast<size_t>(parameters.flat_size()));
    for (const GradientBucket& b : buckets) {
      for (int64_t i = b.begin; i < b.end; ++i) ++covered[static_cast<size_t>(i)];
    }
    CHECK(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
    CHECK(std::is_sorted(buckets.begin(), buckets.end(),
                         [](const auto& a, const auto& b) { return a.after_node < b.after_node; }));
    if (size == 1) CHECK(buckets.size() >= 12);
    if (size == 100000) CHECK(buckets.size() <= 2);
  }
  const auto buckets = gradient_buckets(graph, parameters, 100, 400);
  REQUIRE(buckets.size() >= 4);
  CHECK(buckets.front().after_node + 4 < graph.nodes.size());

  // Node by node: once its node has run, a bucket changes no more.
  RandomBatch batch({12, 9, 4}, classes, 1);
  const BatchView view = batch.view(graph, classes, 3);
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  BoundGraph bound(graph, {Backend::cpu, &cpu_device(), &stream, &pool}, view.extent(), parameters);
  const TensorView g = parameters.gradients();
  std::fill_n(g.as<float>(), g.numel(), 0.0f);
  bound.load(view);
  std::vector<std::vector<float>> then;
  for (size_t node = 0; node < bound.node_count(); ++node) {
    bound.run_node(node);
    while (then.size() < buckets.size() && buckets[then.size()].after_node <= node) {
      const GradientBucket& b = buckets[then.size()];
      then.emplace_back(g.as<float>() + b.begin, g.as<float>() + b.end);
    }
  }
  REQUIRE(then.size() == buckets.size());
  int written = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    CHECK(std::equal(then[i].begin(), then[i].end(), g.as<float>() + buckets[i].begin));
    written += std::any_of(then[i].begin(), then[i].end(), [](float v) { return v != 0; });
  }
  CHECK(written == static_cast<int>(buckets.size()));
}

TEST_CASE("a bucket leaves when its last gradient is written, in the last batch alone",
          "[buckets]") {
  const Graph graph = training_graph();
  const Parameters parameters(graph, cpu_device());
  for (SumsAt at : {SumsAt::everywhere, SumsAt::own_blocks}) {
    NotedGroup group;
    BucketSums sums(group, graph, parameters, 1600, 0, at);
    const auto& buckets = sums.buckets();
    REQUIRE(buckets.size() >= 3);
    LossTotals totals{.sequences = 1};
    const auto run = [&] {
      for (size_t node = 0; node < graph.nodes.size(); ++node) {
        sums.mark(node);
        const auto ready = std::count_if(buckets.begin(), buckets.end(),
                                         [&](const auto& b) { return b.after_node <= node; });
        CHECK(static_cast<std::ptrdiff_t>(group.reduced.size()) == ready);
      }
    };
    for (int update = 0; update < 2; ++update) {
      group.reduced.clear();
      for (size_t node = 0; node < graph.nodes.size(); ++node) sums.mark(node);
      CHECK(group.reduced.empty());
      sums.last_batch();
      run();
      CHECK(group.reduced.size() == buckets.size());
      sums.finish(&totals, nullptr);
      CHECK(group.reduced.size() == buckets.size() + 1);  // and the counts
    }
    // A rank without a share of the last batch runs no node.
    group.reduced.clear();
    sums.last_batch();
    sums.finish(&totals, nullptr);
    CHECK(group.reduced.size() == buckets.size() + 1);
  }
}

// Two ranks over a slow link, whose backward pass is sleep, so that cores do not matter: the share
// of communication hidden in one of at most 20 updates. A busy machine disturbs some of them, so it
// is the first one that hides as much as is `wanted`, if there is one; 1000 otherwise.
double hidden_by_sleep(SumsAt at, int64_t bucket_bytes, const std::function<bool(double)>& wanted) {
  Graph graph;
  ValueId x = layers::input_frames(graph, "features", 64);
  for (int i = 0; i < 16; ++i) x = layers::linear(graph, x, "layer" + std::to_string(i), 64);
  const ValueId logits = layers::linear(graph, x, "out", classes);
  append_backward(graph, layers::ctc_loss(graph, logits));
  double found = 1000;
  run_ranks(2, [&](int rank, Transport& fast) {
    // The 17 KB of a layer's gradients take 8 ms, the next layer 12 ms.
    const auto transport = make_throttled(fast, {2e6, std::chrono::microseconds(50)});
    const auto group = make_ring_group(*transport);
    const Parameters parameters(graph, cpu_device());
    BucketSums sums(*group, graph, parameters, bucket_bytes, 1, at);
    std::vector<bool> computes(graph.nodes.size());
    for (const auto& b : gradient_buckets(graph, parameters, 1, 1)) computes[b.after_node] = true;
    sums.votes()[0] = 0;
    for (int update = 0; update < 20 && sums.votes()[0] == 0; ++update) {
      const Sums::Times before = sums.times();
      sums.votes()[0] = rank == 0 && found < 1000;
      sums.last_batch();
      for (size_t node = 0; node < graph.nodes.size(); ++node) {
        if (computes[node]) std::this_thread::sleep_for(std::chrono::milliseconds(12));
        sums.mark(node);
      }
      LossTotals totals{.sequences = 1};
      sums.finish(&totals, nullptr);
      const Sums::Times t = sums.times();
      const double hidden =
          Sums::Times{t.communication - before.communication, t.exposed - before.exposed}
              .hidden_share();
      if (rank == 0 && wanted(hidden)) found = hidden;
    }
  });
  return found;
}

TEST_CASE("communication hides behind the backward pass", "[buckets][slow]") {
  for (SumsAt at : {SumsAt::everywhere, SumsAt::own_blocks}) {
    CHECK(hidden_by_sleep(at, 16384, [](double share) { return share >= 0.8; }) <= 1);
  }
  // A single bucket leaves when all is computed.
  CHECK(hidden_by_sleep(SumsAt::everywhere, int64_t{1} << 26,
                        [](double share) { return share <= 0.05; }) <= 0.05);
}

TEST_CASE("sums over ranks are right, and the same bits whatever the buckets", "[buckets]") {
  const Graph graph = training_graph();
  for (int world : {2, 3, 4}) {
    std::vector<std::vector<float>> results;
    std::mutex mutex;
    for (int64_t bytes : {int64_t{256}, int64_t{3000}, int64_t{1} << 24}) {
      std::vector<float> first;
      run_ranks(world, [&](int rank, Transport& transport) {
        const auto group = make_ring_group(transport);
        const Parameters parameters(graph, cpu_device());
        BucketSums sums(*group, graph, parameters, bytes);
        const TensorView g = parameters.gradients();
        float* const values = g.as<float>();
        LossTotals totals{.sequences = static_cast<double>(rank)};
        // Whole numbers add up exactly in any order.
        for (int64_t i = 0; i < g.numel(); ++i) values[i] = static_cast<float>(i % 1000 + rank);
        sums.finish(&totals, nullptr);
        bool exact = totals.sequences == world * (world - 1) / 2;
        for (int64_t i = 0; i < g.numel(); ++i) {
          exact = exact &&
                  values[i] == static_cast<float>(world * (i % 1000) + world * (world - 1) / 2);
        }
        std::mt19937 random(static_cast<unsigned>(rank));
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < g.numel(); ++i) values[i] = normal(random);
        sums.last_batch();
        for (size_t node = 0; node < graph.nodes.size() / 2; ++node) sums.mark(node);
        sums.finish(&totals, nullptr);
        const std::lock_guard lock(mutex);
        CHECK(exact);
        results.emplace_back(values, values + g.numel());
      });
    }
    for (const auto& r : results) CHECK(r == results.front());
  }
}

TEST_CASE("the size of buckets follows from the link", "[buckets]") {
  CHECK(bucket_bytes_for({50e-6, 1e9}) == 350000);
  CHECK(bucket_bytes_for({1e-6, 1e8}) == 65536);
  CHECK(bucket_bytes_for({1, 1e9}) == 67108864);
  run_ranks(3, [](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    const LinkSpeed link = measure_link(*group);
    RANK_CHECK(link.latency > 0);
    RANK_CHECK(link.bandwidth > 0);
  });
}
