// Predictions against cases with exact answers, and their order where it is known.
#include <catch2/catch.hpp>
#include <cmath>

#include "engine/plan/lengths.h"
#include "engine/plan/model_layers.h"
#include "engine/plan/split.h"
#include "kernels/base/error.h"

using namespace rondo;
using namespace rondo::plan;

namespace {

// Only arithmetic costs, 1 ns per flop; links are as given.
Cluster simple_cluster(int devices, LinkModel link = {"link", false, 0, 1e30}) {
  Cluster c;
  c.device.name = "simple";
  c.device.memory_bytes = 1e12;
  OpCost cost;
  cost.flop = cost.recurrent_flop = 1e-9;
  for (const char* op : {"lstm", "lstm_backward", "lstm_weight_grad"}) {
    c.device.costs[str(op, "/f32")] = cost;
  }
  c.device.costs["other/f32"] = {};
  c.link = c.node_link = link;
  c.devices = devices;
  return c;
}

Job lstm_job(int layers, bool bidirectional = false) {
  Job job;
  job.model = [=](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 64);
    layers::LstmOptions o;
    o.hidden = 64;
    o.layers = layers;
    o.bidirectional = bidirectional;
    x = layers::lstm(g, x, "encoder", o);
    const ValueId logits = layers::linear(g, x, "output", 16);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  job.batches = {{{64, 100, 20}, 1}};
  return job;
}

// Flops of one layer of lstm_job per phase: W and R, both 256 x 64.
constexpr double layer_flops = 2.0 * 64 * 100 * (256 * 64 + 256 * 64);

}  // namespace

TEST_CASE("one device: the sum of its nodes") {
  const Planner planner(lstm_job(2), simple_cluster(1));
  CHECK(planner.layers() == 3);
  const Prediction p = planner.predict({});
  // Forward, backward (no gradient into the first layer's input), weights.
  const double flops = 2 * layer_flops + 1.5 * layer_flops + 2 * layer_flops;
  CHECK(p.seconds == Approx(flops * 1e-9).epsilon(1e-9));
  CHECK(p.frames_per_second == Approx(6400 / p.seconds));
  CHECK(p.bubble == 0);
  CHECK(p.fits);
}

TEST_CASE("data parallelism: the ring's formula") {
  // Bandwidth so small that buckets cannot hide: one bucket more or less does not change the sum.
  const LinkModel link{"link", false, 0, 1e6};
  const Planner planner(lstm_job(2), simple_cluster(4, link));
  const Prediction p = planner.predict({4});
  const double bytes = 4.0 * static_cast<double>(planner.weights());
  CHECK(p.communication == Approx(2.0 * 3 / 4 * bytes / 1e6).epsilon(1e-9));
  const Planner alone(lstm_job(2), simple_cluster(1));
  CHECK(p.seconds > alone.predict({}).seconds / 4);
  CHECK(p.hidden >= 0);
  CHECK(p.hidden < 1);
}

TEST_CASE("pipeline: the bubbles of the schedules") {
  // Four layers with a gradient into the input would be equal; the first lacks half of its backward
  // pass and the output layer is free, so the bubble is bounded by that of equal stages.
  const Planner planner(lstm_job(4), simple_cluster(4));
  double last = 1;
  for (int m : {4, 8, 16, 64}) {
    const Prediction p = planner.predict({1, 4, 1, m, ScheduleKind::gpipe});
    INFO(m << " micro-batches");
    CHECK(p.bubble >= 3.0 / (m + 3) - 1e-9);
    CHECK(p.bubble <= 3.0 / (m + 3) + 0.06);
    CHECK(p.bubble < last);
    last = p.bubble;
    // The same work, better arranged.
    const Prediction z = planner.predict({1, 4, 1, m, ScheduleKind::zero_bubble});
    CHECK(z.seconds <= p.seconds * (1 + 1e-12));
  }
}

TEST_CASE("memory falls with the micro-batches a schedule stores") {
  const Planner planner(lstm_job(4), simple_cluster(4));
  const double all = planner.predict({1, 4, 1, 16, ScheduleKind::gpipe}).memory_bytes;
  const double few = planner.predict({1, 4, 1, 16, ScheduleKind::one_f_one_b}).memory_bytes;
  CHECK(few < 0.5 * all);
  const double one = planner.predict({4}).memory_bytes;
  const double sharded = planner.predict({1, 1, 4}).memory_bytes;
  CHECK(sharded < planner.predict({}).memory_bytes / 2);
  CHECK(one == Approx(sharded).epsilon(0.2));  // a quarter of the rows either way
}

TEST_CASE("sequence shards: mL / (mL + p - 1) for unidirectional layers") {
  const Planner planner(lstm_job(4), simple_cluster(4));
  double last = 0;
  for (int m : {1, 2, 8}) {
    const Prediction p = planner.predict({1, 1, 4, m});
    const double utilisation = 1 - p.bubble;
    INFO(m << " micro-batches: " << utilisation);
    // Weight gradients fill gaps of the way back, so it is at least that of the waves alone.
    CHECK(utilisation >= 4.0 * m / (4 * m + 3) - 1e-9);
    CHECK(utilisation > last);
    last = utilisation;
  }
}

TEST_CASE("the ranking covers every split once, what fits first, the fastest first") {
  Job job = lstm_job(5, true);
  Cluster cluster = simple_cluster(8, {"link", false, 1e-5, 1e9});
  const Planner planner(job, cluster);
  const auto ranking = planner.rank();
  int splits = 0;
  for (size_t i = 0; i < ranking.size(); ++i) {
    CHECK(ranking[i].split.devices() == 8);
    if (i > 0) {
      CHECK((ranking[i - 1].fits || !ranking[i].fits));
      if (ranking[i].fits) CHECK(ranking[i - 1].seconds <= ranking[i].seconds);
    }
    ++splits;
  }
  // data x pipeline x sequence = 8 with at most 6 stages: all ordered triples but pipeline 8.
  CHECK(splits == 9);
  // Memory decides: with room for half of the best split's needs, another one wins.
  cluster.device.memory_bytes = ranking[0].memory_bytes * 0.7;
  const auto tight = Planner(job, cluster).rank();
  CHECK(tight[0].memory_bytes < ranking[0].memory_bytes);
  cluster.device.memory_bytes = 1;
  CHECK_FALSE(Planner(job, cluster).rank()[0].fits);
}

TEST_CASE("objections name the figures") {
  const Planner planner(lstm_job(2), simple_cluster(8));
  CHECK_THAT(planner.objection({1, 8}), Catch::Contains("8 stages of a model with 3 layers"));
  CHECK_THAT(planner.objection({128}),
             Catch::Contains("batches of 64 utterances for 128 replicas"));
  CHECK_THAT(planner.objection({1, 1, 128}), Catch::Contains("100 frames for 128 shards"));
  CHECK_THAT(planner.objection({1, 2, 1, 1, ScheduleKind::one_f_one_b}), Catch::Contains("1f1b"));
  CHECK(planner.objection({8}).empty());
}

TEST_CASE("stages are cut where the longest is shortest") {
  CHECK(cut_evenly({1, 1, 1, 1}, 2) == std::vector<int>{0, 2, 4});
  CHECK(cut_evenly({5, 1, 1, 1}, 2) == std::vector<int>{0, 1, 4});
  CHECK(cut_evenly({1, 1, 1, 9}, 3).back() == 4);
  CHECK(cut_evenly({1, 1, 1, 9}, 3)[2] == 3);
  CHECK_THROWS_AS(cut_evenly({1}, 2), Error);
}

TEST_CASE("lengths become batches") {
  const auto lengths = parse_lengths("2:1,10:3");
  REQUIRE(lengths.size() == 2);
  CHECK(lengths[1].share == 0.75);
  const auto batches = batches_of(lengths, 0.01, 2000, 5);
  CHECK(batches[0].shape.sequences == 10);
  CHECK(batches[1].shape.sequences == 2);
  CHECK(batches[1].shape.labels == 50);
  // Ten times as many utterances per batch: fewer batches.
  CHECK(batches[0].weight == Approx(0.025 / (0.025 + 0.375)));
  CHECK_THROWS_WITH(parse_lengths("3:x"), Catch::Contains("'x' is not a number above 0"));
  CHECK_THROWS_AS(parse_lengths(""), InputError);
  CHECK_THROWS_AS(parse_lengths("3,,4"), InputError);
  const auto histogram = histogram_of({1, 2, 3, 10}, 2);
  REQUIRE(histogram.size() == 2);
  CHECK(histogram[0].seconds == 1.5);
  CHECK(histogram[1].seconds == 6.5);
}
