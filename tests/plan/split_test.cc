// Predictions against cases with exact answers, and their order where it is known.
#include <cmath>

#include "engine/graph/rules.h"
#include "engine/plan/cluster_links.h"
#include "engine/plan/model_layers.h"
#include "kernels/base/error.h"
#include "kernels/pointwise/pointwise.h"
#include "tests/catch.h"
#include "tests/plan/simple_job.h"

using namespace rondo;
using namespace rondo::plan;
using namespace rondo::test;

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

TEST_CASE("layers are those that the engine cuts between, turns those of every time loop") {
  Job job = lstm_job(3);
  const Planner plain(job, simple_cluster(4));
  job.model = [](Graph& g) {
    layers::LstmOptions o;
    o.hidden = 64;
    const ValueId a = layers::lstm(g, layers::input_frames(g, "features", 64), "a", o);
    const ValueId c = layers::lstm(g, layers::lstm(g, a, "b", o), "c", o);
    const ValueId logits = layers::linear(g, layers::add(g, a, c), "output", 16);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  const Planner skipping(job, simple_cluster(4));  // what a makes skips b and c
  CHECK(plain.layers() == 4);
  CHECK(skipping.layers() == 3);
  CHECK(skipping.weights() == plain.weights());
  CHECK(skipping.predict({1, 1, 4}).seconds == Approx(plain.predict({1, 1, 4}).seconds));
  CHECK(skipping.predict({1, 3, 1, 2}).seconds > 1.1 * plain.predict({1, 3, 1, 2}).seconds);
}

TEST_CASE("a model with an op that does not say how much work it is cannot be planned") {
  OpRule untold = rule_of("pointwise");
  untold.op = "untold";
  untold.work = nullptr;
  const ExtraRule extra(untold);
  Job job = lstm_job(2);
  job.model = [](Graph& g) {
    ValueId x = layers::linear(g, layers::input_frames(g, "features", 64), "below", 64);
    x = g.add_node("untold", {x}, {{"function", static_cast<int64_t>(PointwiseFunction::tanh)}})[0];
    const ValueId logits = layers::linear(g, x, "output", 16);
    return Outputs{layers::ctc_loss(g, logits), logits};
  };
  CHECK_THROWS_WITH(Planner(job, simple_cluster(1)),
                    Catch::Contains("the op 'untold' does not say how much work it is"));
  untold.time = {};
  CHECK_THROWS_WITH(Planner(job, simple_cluster(1)),
                    Catch::Contains("the op 'untold' does not say what it does to time"));
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
  CHECK(p.hidden() >= 0);
  CHECK(p.hidden() < 1);
}

TEST_CASE("sums follow each other, the first behind the last layer's passes, beside the others'") {
  // Each layer is a bucket, whose sum takes longer than the backward pass of the next one.
  constexpr double bandwidth = 1e5, layer_weights = 4 * 64 * (64 + 64 + 1);
  Cluster c = simple_cluster(2, {"link", false, 0, bandwidth});
  const Planner planner(lstm_job(3), c);
  const double turn = layer_flops / 2 * 1e-9;
  const auto weights = static_cast<double>(planner.weights());
  const double sums = 4 * weights / bandwidth;
  const Prediction p = planner.predict({2});
  CHECK(p.seconds == Approx((3 + 2) * turn + sums + 96 / bandwidth));  // and twelve numbers
  CHECK(p.exposed == Approx(sums - 3.5 * turn));
  // Beside weight gradients alone where these come last, of all micro-batches.
  CHECK(planner.predict({1, 1, 2, 4}).exposed == Approx(sums - 2 * turn));
  // Copies to the buckets of the other two layers hide them as well.
  c.device.rates["optimizer/f32"].byte = 1e-7;
  const Prediction copied = Planner(lstm_job(3), c).predict({2});
  CHECK(copied.exposed == Approx(p.exposed - 2 * 2 * 4 * layer_weights * 1e-7));
  CHECK(copied.computing - p.computing == Approx((4 + update_arrays({})) * 4 * weights * 1e-7));
}

TEST_CASE("messages between stages are half as long in bf16") {
  Job job = lstm_job(2);
  const Cluster c = simple_cluster(2, {"link", false, 0, 1e6});
  const double whole = Planner(job, c).predict({1, 2}).seconds;
  job.wire = DType::bf16;
  // There and back.
  CHECK(whole - Planner(job, c).predict({1, 2}).seconds == Approx(64 * 100 * 64 * 4 / 1e6));
}

TEST_CASE("shards compute as much as one rank, whatever the directions") {
  for (const bool bidirectional : {false, true}) {
    const Planner planner(lstm_job(2, bidirectional), simple_cluster(2));
    CHECK(planner.predict({1, 1, 2}).computing == Approx(planner.predict({}).computing / 2));
  }
}

TEST_CASE("pipeline: unequal stages, in the order of their work") {
  // All micro-batches through stages of f_i seconds: their sum, and m - 1 times the longest.
  const Planner planner(lstm_job(4), simple_cluster(4));
  double last = 1;
  for (int m : {4, 8, 16, 64}) {
    const Prediction p = planner.predict({1, 4, 1, m});
    INFO(m << " micro-batches");
    // The first layer lacks its input's gradient, half of an input-backward.
    const double turns = (4 + (m - 1)) + (3 * 2 + 1.5 + (m - 1) * 2);
    CHECK(p.seconds == Approx(turns * layer_flops / m * 1e-9).epsilon(1e-9));
    CHECK(p.bubble < last);
    last = p.bubble;
    const Prediction z = planner.predict({1, 4, 1, m, ScheduleKind::zero_bubble});
    CHECK(z.seconds <= p.seconds * (1 + 1e-12));
  }
}

TEST_CASE("links between nodes: only messages that leave a node take them, and share them") {
  Cluster c = simple_cluster(8, {"near", false, 1e-6, 100});
  c.node_link = {"far", false, 1e-3, 10};
  c.per_node = 4;
  // The bandwidth between nodes, 0 for a link within one.
  const auto far = [](const LinkModel& l) {
    CHECK((l.latency == 1e-3 || (l.latency == 1e-6 && l.bandwidth == 100)));
    return l.latency == 1e-3 ? l.bandwidth : 0;
  };
  // Eight stages over two nodes: one boundary lies between them.
  for (int from = 0; from < 7; ++from) {
    CHECK(far(stage_link(c, {1, 8, 1, 8}, from, from + 1)) == (from == 3 ? 10 : 0));
    CHECK(far(stage_link(c, {1, 8, 1, 8}, from + 1, from)) == (from == 3 ? 10 : 0));
  }
  // Two replicas of four stages: each in a node; only the rings leave, four of them.
  for (int from = 0; from < 3; ++from) CHECK(far(stage_link(c, {2, 4}, from, from + 1)) == 0);
  CHECK(far(ring_link(c, {2, 4})) == 2.5);
  // One ring over all ranks leaves each node once.
  CHECK(far(ring_link(c, {8})) == 10);
  CHECK(far(ring_link(c, {1, 8})) == 0);
  // Two stages of four shards: all four shards cross at the same time, and no shard has its
  // neighbour elsewhere.
  CHECK(far(stage_link(c, {1, 2, 4}, 0, 1)) == 2.5);
  for (int k = 0; k < 3; ++k) CHECK(far(shard_link(c, {1, 2, 4}, k)) == 0);
  for (int k = 2; k < 4; ++k) CHECK(far(shard_link(c, {1, 1, 8}, k)) == (k == 3 ? 10 : 0));
  // Six stages in nodes of four: of two replicas, one is cut at 3|4, the other at 1|2.
  c.devices = 12;
  for (int from = 1; from < 4; ++from) {
    CHECK(far(stage_link(c, {2, 6, 1, 6}, from, from + 1)) == (from == 2 ? 0 : 10));
  }
}

TEST_CASE("a slow link costs a pipeline only where a boundary crosses it") {
  Cluster c = simple_cluster(4);
  c.node_link = {"far", false, 0.5, 1e30};
  const Planner inside(lstm_job(4), c);
  const Split split{1, 4, 1, 1};
  const double fast = inside.predict(split).seconds;
  // And each of the four sums of a few numbers, in two rounds, of which one leaves a node of two.
  c.per_node = 2;
  CHECK(Planner(lstm_job(4), c).predict(split).seconds == Approx(fast + 2 * 0.5 + 4 * 0.5));
  c.per_node = 1;
  CHECK(Planner(lstm_job(4), c).predict(split).seconds == Approx(fast + 2 * 3 * 0.5 + 4 * 2 * 0.5));
}

TEST_CASE("ranks share cores with each other and with what prepares their batches") {
  Cluster c = simple_cluster(1);
  c.device.cores = 2;
  Job job = lstm_job(2);
  const double alone = Planner(job, c).predict({}).seconds;
  const double input = 0.1 * alone;
  job.input_seconds_per_frame = input / 6400;
  // The other core prepares batches.
  CHECK(Planner(job, c).predict({}).seconds == Approx(alone));
  CHECK(Planner(job, c).predict({}).input_delay == 0);
  c.devices = 2;
  const Prediction two = Planner(job, c).predict({2});
  CHECK(two.seconds == Approx(alone / 2 + input / 2));
  CHECK(two.input_delay == Approx(input / 2));
  // Both ranks of a pipeline prepare whole batches, which delays them while they compute.
  const Prediction stages = Planner(job, c).predict({1, 2, 1, 4});
  const double share = stages.computing / (stages.seconds - stages.input_delay);
  CHECK(share < 0.9);
  CHECK(stages.input_delay == Approx(share * input));
  // Four ranks on two cores take turns; batches are prepared at the expense of all.
  c.devices = 4;
  CHECK(Planner(job, c).predict({4}).seconds == Approx(alone / 2 + input / 2));
  // One thread cannot prepare faster than that, however many cores are idle.
  c.devices = 1;
  c.device.cores = 64;
  job.input_seconds_per_frame = 3 * alone / 6400;
  CHECK(Planner(job, c).predict({}).seconds == Approx(3 * alone));
  job.input_threads = 2;
  CHECK(Planner(job, c).predict({}).seconds == Approx(1.5 * alone));
}

TEST_CASE("memory falls with the micro-batches a schedule stores") {
  const Planner planner(lstm_job(4), simple_cluster(4));
  // The first stage stores four micro-batches: all of four, or a quarter of sixteen.
  const double all = planner.predict({1, 4, 1, 4}).memory_bytes;
  const double few = planner.predict({1, 4, 1, 16}).memory_bytes;
  CHECK(few < 0.5 * all);
  // Of twice the batch two replicas have the same, and the memory in which gradients travel.
  Job twice = lstm_job(4);
  twice.batches[0].shape.sequences *= 2;
  CHECK(Planner(twice, simple_cluster(2)).predict({2}).memory_bytes -
            planner.predict({}).memory_bytes ==
        4 * static_cast<double>(planner.weights()));
  // A stage is one of four layers.
  CHECK(planner.predict({1, 4, 1, 1}).memory_bytes < 0.5 * planner.predict({}).memory_bytes);
  const double one = planner.predict({4}).memory_bytes;
  const double sharded = planner.predict({1, 1, 4}).memory_bytes;
  CHECK(sharded < planner.predict({}).memory_bytes / 2);
  CHECK(one == Approx(sharded).epsilon(0.2));  // a quarter of the rows either way
}

TEST_CASE("sequence shards: unidirectional layers there and back") {
  const Planner planner(lstm_job(4), simple_cluster(4));
  // Four layers over four shards take 4 + 3 turns forward, and back 3 until the first shard begins,
  // then its 3.5 (the first layer has no gradient of its input) and 4 for the weights.
  const double turns = 7 + 3 + 3.5 + 4;
  for (int m : {1, 2, 8}) {
    INFO(m << " batches of one wave each");
    Split split{1, 1, 4};
    split.batches = m;
    const Prediction p = planner.predict(split);
    CHECK(p.seconds == Approx(turns * layer_flops / 4 * 1e-9).epsilon(1e-9));
    CHECK(p.bubble == Approx(1 - 11.5 / turns).epsilon(1e-9));
  }
  // In one wave each of four layers' m parts follow each other: 4m + 3 turns forward, 3.5m + 3 back
  // (what the last shard has to wait for has come), 4m for the weights.
  for (int m : {4, 8}) {
    const Prediction p = planner.predict({1, 1, 4, m});
    CHECK(p.seconds == Approx((11.5 * m + 6) / m * layer_flops / 4 * 1e-9).epsilon(1e-9));
  }
}

TEST_CASE("the ranking covers every split once, what fits first, the fastest first") {
  Job job = lstm_job(5, true);
  Cluster cluster = simple_cluster(8, {"link", false, 1e-5, 1e9});
  const Planner planner(job, cluster);
  const auto ranking = planner.rank();
  for (size_t i = 0; i < ranking.size(); ++i) {
    CHECK(ranking[i].split.devices() == 8);
    if (i == 0) continue;
    CHECK((ranking[i - 1].fits || !ranking[i].fits));
    if (ranking[i].fits) CHECK(ranking[i - 1].seconds <= ranking[i].seconds);
  }
  // data x pipeline x sequence = 8 with at most 6 stages: all ordered triples but pipeline 8.
  CHECK(ranking.size() == 9);
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
  CHECK(planner.objection({8}).empty());
}

TEST_CASE("stages that share sequences: turns of one layer each") {
  // Two stages of two unidirectional layers over two shards, one micro-batch: the last shard of the
  // last stage ends forward after 4 + 1 turns; backward after 4 input gradients, half of one less,
  // and one turn to the other shard; weight gradients of a stage's two layers come with it.
  const Planner planner(lstm_job(4), simple_cluster(4));
  const double turn = layer_flops / 2 * 1e-9;
  const Prediction whole = planner.predict({1, 2, 2, 1});
  CHECK(whole.seconds == Approx((5 + 2 + 2 + 1.5 + 1 + 2) * turn).epsilon(1e-9));
  // A micro-batch more makes every turn shorter, and adds one of the slowest stage each way.
  const Prediction parts = planner.predict({1, 2, 2, 16});
  CHECK(parts.seconds < 0.75 * whole.seconds);
  CHECK(parts.bubble < 0.6 * whole.bubble);
  // Messages between the stages and states between the shards take their time.
  const Planner slow(lstm_job(4), simple_cluster(4, {"link", false, turn, 1e30}));
  CHECK(slow.predict({1, 2, 2, 1}).seconds > whole.seconds + 4 * turn);
}

TEST_CASE("a divided optimiser: bytes of a rank, and of what travels") {
  Job job = lstm_job(2);
  job.optimizer.kind = OptimizerOptions::adamw;
  const LinkModel link{"link", false, 0, 1e6};
  const Planner planner(job, simple_cluster(8, link));
  const auto weights = static_cast<double>(planner.weights());
  const auto part = [&](double n) { return std::ceil(weights / 256 / n) * 256; };
  for (int n : {2, 8}) {
    Split whole{n}, divided{n};
    divided.divide_optimizer = true;
    const Prediction a = planner.predict(whole), b = planner.predict(divided);
    // Two arrays of state; of the part two of state, its weights and gradients, and all parts.
    const double saved = 4 * (2 * weights - 4 * part(n) - n * part(n));
    CHECK(a.memory_bytes - b.memory_bytes == Approx(saved));
    // A batch takes no time but for its sums: half of the ring before the update, half
    // behind it. Padding travels with the weights.
    const double half = (n - 1) * 4 * weights / n / 1e6, back = (n - 1) * 4 * part(n) / 1e6;
    CHECK(a.communication == Approx(2 * half).epsilon(1e-9));
    CHECK(b.communication == Approx(half + back).epsilon(1e-9));
    CHECK(b.hidden() < 0.5);
  }
  // The ranks of a stage sum their gradients whole, and the weights come back in addition.
  Split stages{4, 2, 1, 2};
  const Prediction a = planner.predict(stages);
  stages.divide_optimizer = true;
  const Prediction b = planner.predict(stages);
  CHECK(b.communication > 1.4 * a.communication);
  CHECK(b.seconds > a.seconds);
}

TEST_CASE("passes over the weights: what updates, divided updates and buckets read and write") {
  Job job = lstm_job(2);
  job.optimizer.kind = OptimizerOptions::adamw;
  const double compute = Planner(job, simple_cluster(1)).predict({}).seconds;
  Cluster c = simple_cluster(4);
  c.device.rates["optimizer/f32"].byte = 1e-3;
  const Planner planner(job, c);
  const auto weights = static_cast<double>(planner.weights());
  const double part = std::ceil(weights / 256 / 4) * 256;
  const auto passes = [&](Split s, double share) {
    return (planner.predict(s).seconds - share * compute) / (4 * 1e-3);
  };
  // Gradients are cleared and squared; Adam reads and writes weights and two moments, and reads
  // gradients.
  CHECK(passes({1}, 1) == Approx(9 * weights).epsilon(1e-6));
  // To the buckets and back.
  CHECK(passes({4}, 0.25) == Approx((9 + 4) * weights).epsilon(1e-6));
  // To the buckets, and a part back; cleared, and out of where the parts meet; of the part squares,
  // Adam, gradients there, weights there. With stages the gradients come back whole.
  Split divided{4};
  divided.divide_optimizer = true;
  CHECK(passes(divided, 0.25) ==
        Approx((2 + 2.0 / 4) * weights + 3 * weights + 12 * part).epsilon(1e-6));
  // A moving average is read and written, and reads the weights.
  job.optimizer.ema_decay = 0.9;
  const Planner averaged(job, c);
  CHECK((averaged.predict({1}).seconds - compute) / 4e-3 == Approx(12 * weights).epsilon(1e-6));
  CHECK(update_arrays({.kind = OptimizerOptions::sgd}) == 5);
  CHECK(update_arrays({.kind = OptimizerOptions::sgd, .momentum = 0.9}) == 7);
}

TEST_CASE("sums that computation hides take cores, where ranks have none to spare") {
  Job job = lstm_job(4);
  // Slow enough to be seen, fast enough to be hidden.
  Cluster c = simple_cluster(2);
  const double compute = Planner(job, c).predict({2}).seconds;
  const auto weights = static_cast<double>(Planner(job, c).weights());
  c.link = {"link", false, 0, 4 * weights / (0.1 * compute)};
  c.device.cores = 4;
  const Prediction idle = Planner(job, c).predict({2});
  CHECK(idle.input_delay == 0);
  c.device.cores = 2;
  const Prediction busy = Planner(job, c).predict({2});
  const double hidden = busy.hidden() * busy.communication;
  CHECK(hidden > 0.03 * compute);
  CHECK(busy.input_delay > 0.9 * hidden);
  CHECK(busy.input_delay <= hidden * (1 + 1e-9));
  CHECK(busy.seconds == Approx(idle.seconds + busy.input_delay));
}

TEST_CASE("time steps are those of the longest utterance, rows those of all") {
  Job job = lstm_job(1);
  Cluster c = simple_cluster(1);
  const auto seconds = [&](double longest) {
    job.batches[0].shape.longest = longest;
    return Planner(job, c).predict({}).seconds;
  };
  CHECK(seconds(140) == Approx(seconds(0)));
  c.device.rates["lstm/f32"].step = 1e-3;
  CHECK(seconds(140) - seconds(0) == Approx(40e-3));
  job.batches[0].shape.longest = 140;
  CHECK(Planner(job, c).predict({}).frames_per_second ==
        Approx(6400 / Planner(job, c).predict({}).seconds));
}

TEST_CASE("the optimiser is divided where nothing else fits, or where that is faster") {
  Job job = lstm_job(5);
  job.optimizer.kind = OptimizerOptions::adamw;
  job.optimizer.ema_decay = 0.9;
  Cluster cluster = simple_cluster(8, {"link", false, 0, 1e9});
  const Planner planner(job, cluster);
  const auto with_optimizer = [](const std::vector<Prediction>& ranking) {
    return std::count_if(ranking.begin(), ranking.end(),
                         [](const Prediction& p) { return p.split.divide_optimizer; });
  };
  // Updates take no time here: there is no gain.
  CHECK(with_optimizer(planner.rank()) == 0);
  // With as many micro-batches as there can be only the optimiser is left to be divided.
  Split whole{8, 1, 1, 8}, divided = whole;
  divided.divide_optimizer = true;
  const double most = planner.predict(whole).memory_bytes;
  const double least = planner.predict(divided).memory_bytes;
  REQUIRE(least < most);
  cluster.device.memory_bytes = (most + least) / 2 / 0.95;
  bool found = false;
  for (const Prediction& p : Planner(job, cluster).rank()) {
    if (p.split.pipeline > 1 || p.split.sequence > 1) continue;
    found = p.fits && p.split.divide_optimizer;
  }
  CHECK(found);
  // Where updating takes longer than getting the weights back, dividing it is faster.
  cluster.device.memory_bytes = 1e12;
  cluster.device.rates["optimizer/f32"].byte = 1e-6;
  CHECK(Planner(job, cluster).rank()[0].split.divide_optimizer);
}
