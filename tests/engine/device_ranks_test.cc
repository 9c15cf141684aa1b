// Data parallelism on devices: the streams keep the order, whatever the simulator draws.
#include <atomic>

#include "comm/group/staged_group.h"
#include "comm/in_process/run_ranks.h"
#include "kernels/devices.h"
#include "kernels/simt/sim/scheduler.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/engine/device_ranks.h"

using namespace rondo;
using Catch::Matchers::Contains;
using rondo::test::train_device_rank;

namespace {

std::unique_ptr<DeviceGroup> staged(Transport& transport) {
  GroupOptions g;
  g.id = 1;
  return make_staged_group(require_device(DeviceKind::sim), make_ring_group(transport, g),
                           std::chrono::seconds(60));
}

// By rank.
std::vector<std::vector<float>> trained(int ranks, int steps, int64_t bucket_bytes) {
  std::vector<std::vector<float>> weights(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](int rank, Transport& transport) {
    const auto control = make_ring_group(transport);
    const auto sums = staged(transport);
    weights[static_cast<size_t>(rank)] = train_device_rank(*control, *sums, steps, bucket_bytes);
  });
  return weights;
}

// The same batches, summed by one session on one rank.
std::vector<float> trained_alone(int ranks, int steps) {
  Graph g;
  test::device_ranks_model(g);
  auto batches = test::device_ranks_batches(ranks, 2 * steps);
  Session session(test::device_ranks_model, test::device_ranks_options());
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 2 * ranks; ++i) {
      if (ranks > 1 && i == 2 * ranks - 1) continue;  // no share of the last rank
      const auto index = static_cast<size_t>(2 * step * ranks + i);
      session.accumulate(batches[index].view(g, 5, static_cast<unsigned>(index)));
    }
    session.update();
  }
  return test::weights_of(session);
}

}  // namespace

TEST_CASE("the order of streams holds: simulated devices give the same bits for every interleaving",
          "[device_ranks][slow]") {
  constexpr int steps = 3;
  for (int ranks : {2, 3}) {
    const std::vector<float> alone = trained_alone(ranks, steps);
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      for (int64_t bucket_bytes : {int64_t{1} << 24, int64_t{1500}}) {
        set_sim_options({.seed = seed});
        const auto weights = trained(ranks, steps, bucket_bytes);
        if (first.empty()) first = weights[0];
        INFO(ranks << " ranks, seed " << seed << ", buckets of " << bucket_bytes << " bytes");
        for (const auto& w : weights) CHECK(w == first);
      }
    }
    REQUIRE(first.size() == alone.size());
    double difference = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      const double d = std::abs(static_cast<double>(alone[i]) - first[i]);
      if (!(d <= difference)) difference = d;
    }
    INFO(ranks << " ranks: " << difference << " from one rank");
    CHECK(difference <= 2e-4);  // the order of sums differs, and AdamW divides by small numbers
  }
  set_sim_options({});
}

TEST_CASE("buckets of devices leave during the last backward pass alone", "[device_ranks]") {
  // Counts; everything else is the ring's.
  struct Counting final : ProcessGroup {
    explicit Counting(std::unique_ptr<ProcessGroup> g) : inner(std::move(g)) {}
    int rank() const override { return inner->rank(); }
    int size() const override { return inner->size(); }
    Work all_reduce(const TensorView& data, Reduction op, Limit limit) override {
      ++reduced;
      return inner->all_reduce(data, op, limit);
    }
    Work reduce_scatter(const TensorView&, Reduction, Limit) override { return {}; }
    Work all_gather(const TensorView& data, Limit limit) override {
      return inner->all_gather(data, limit);
    }
    Work broadcast(const TensorView&, int, Limit) override { return {}; }
    Work barrier(Limit limit) override { return inner->barrier(limit); }
    Work send(int, uint32_t, std::span<const std::byte>, Limit) override { return {}; }
    Work recv(int, uint32_t, std::span<std::byte>, Limit) override { return {}; }
    void abort(const std::string& reason) noexcept override { inner->abort(reason); }
    std::unique_ptr<ProcessGroup> inner;
    std::atomic<int> reduced = 0;
  };
  run_ranks(2, [](int, Transport& transport) {
    Device& device = require_device(DeviceKind::sim);
    const auto control = make_ring_group(transport);
    GroupOptions g;
    g.id = 1;
    auto host = std::make_unique<Counting>(make_ring_group(transport, g));
    Counting& counting = *host;
    const auto sums = make_staged_group(device, std::move(host), std::chrono::seconds(60));
    Session session(test::device_ranks_model, test::device_ranks_options());
    DeviceBucketSums gradients(*control, *sums, session.context(),
                               session.rank_model().executed_graph(), session.parameters(), 1500);
    const auto buckets = static_cast<int>(gradients.buckets().size());
    if (buckets < 3) throw Error("too few buckets to tell");
    session.set_sums(&gradients);
    Graph graph;
    test::device_ranks_model(graph);
    test::RandomBatch batch({9, 7, 4}, 5, 1);
    const BatchView view = batch.view(graph, 5, 1);
    session.accumulate(view);
    if (counting.reduced != 0) throw Error("a bucket left before the last batch");
    gradients.last_batch();
    session.accumulate(view);
    control->barrier().wait();
    // Without an update: all buckets are on their way.
    sums->barrier().wait();
    if (counting.reduced != buckets) throw Error(str(counting.reduced.load(), " buckets left"));
    session.update();
    const Sums::Times t = gradients.times();
    if (!(t.communication > 0) || !(t.exposed >= 0)) throw Error("no times were taken");
  });
}

TEST_CASE("no host waits for a device in the steps of several ranks", "[slow][device_ranks]") {
  run_ranks(2, [](int, Transport& transport) {
    const auto control = make_ring_group(transport);
    const auto sums = staged(transport);
    Session session(test::device_ranks_model, test::device_ranks_options());
    DeviceBucketSums gradients(*control, *sums, session.context(),
                               session.rank_model().executed_graph(), session.parameters(), 1500);
    session.set_sums(&gradients);
    Graph graph;
    test::device_ranks_model(graph);
    test::RandomBatch batch({9, 7, 4}, 5, 1);
    const BatchView view = batch.view(graph, 5, 1);
    const auto enqueue_steps = [&](int steps) {
      for (int step = 0; step < steps; ++step) {
        gradients.last_batch();
        session.enqueue(view);
        session.enqueue_update();
      }
      control->barrier().wait();
    };
    const auto collect_all = [&] {
      while (session.in_flight() > 0) session.collect();
      control->barrier().wait();
    };
    for (int warm = 0; warm < 2; ++warm) {  // memory is there afterwards
      enqueue_steps(3);
      collect_all();
    }
    const SimCounters before = sim_counters();
    control->barrier().wait();
    enqueue_steps(3);
    const SimCounters after = sim_counters();
    control->barrier().wait();
    collect_all();
    if (after.stream_waits != before.stream_waits) throw Error("the host has waited");
    if (after.allocations != before.allocations) throw Error("memory was allocated");
    // Each rank's batches, though their buckets leave meanwhile, and updates.
    const int64_t launches = after.launches - before.launches;
    if (launches != 2 * 3 * 2) throw Error(str(launches, " launches of recorded work"));
    const Sums::Times t = gradients.times();
    if (!(t.computed > 0)) throw Error("nothing is said of the time that ranks compute");
  });
}

TEST_CASE("a rank that fails ends training on devices with its cause", "[slow][device_ranks]") {
  const RankOutcome outcome = run_ranks_and_collect(3, [](int rank, Transport& transport) {
    const auto control = make_ring_group(transport);
    const auto sums = staged(transport);
    if (rank == 1) {
      train_device_rank(*control, *sums, 1, 1500);
      throw Error("bad data");
    }
    train_device_rank(*control, *sums, 3, 1500);
  });
  for (int rank : {0, 2}) {
    try {
      REQUIRE(outcome.errors[static_cast<size_t>(rank)]);
      std::rethrow_exception(outcome.errors[static_cast<size_t>(rank)]);
    } catch (const CommError& e) {
      CHECK_THAT(e.what(), Contains("bad data"));
    }
  }
}
