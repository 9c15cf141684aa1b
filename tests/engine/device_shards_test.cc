// Sequences cut in time over ranks with simulated devices give what one such device gives.
#include <cmath>
#include <mutex>

#include "comm/group/process_group.h"
#include "comm/in_process/in_process.h"
#include "comm/in_process/run_ranks.h"
#include "engine/cut/chunked_training.h"
#include "engine/session.h"
#include "kernels/base/dispatch.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/engine/sequence_cases.h"
#include "tests/rank_check.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Contains;

namespace {

constexpr auto patience = std::chrono::seconds(60);

Outputs small_unidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder", {.hidden = 9, .layers = 2, .dropout = 0.3, .layer_norm = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

Outputs small_bidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lower", {.hidden = 8, .bidirectional = true});
  x = layers::stack_frames(g, x, 3);
  x = layers::lstm(g, x, "upper", {.hidden = 12, .bidirectional = true, .projection = 7});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Its convolutions read both sides at the input, ahead, and the past at another level.
Outputs convolutional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::gelu(g, layers::conv(g, x, "front", {.channels = 9, .kernel = 4}));
  x = layers::conv(g, x, "ahead", {.channels = 7, .kernel = 3, .context = ConvContext::future});
  x = layers::conv(g, x, "half", {.channels = 8, .kernel = 5, .stride = 2});
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

Outputs causal(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::conv(g, x, "front", {.channels = 9, .kernel = 4, .context = ConvContext::past});
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder", {.hidden = 9});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// The variant of ctc whose arithmetic is that of chunks, while it lives.
struct LogSpace {
  LogSpace() { prefer_variant("ctc", "log_space"); }
  ~LogSpace() { prefer_variant("ctc", ""); }
};

struct SimSetup : Setup {
  explicit SimSetup(const ModelFunction& model) : Setup(model, DType::f32, sim_device()) {}
};

Result run_whole_sim(const ModelFunction& model, const std::vector<BatchView>& batches,
                     DType compute = DType::f32) {
  return run_whole(model, compute, batches, sim_device());
}

Result run_sharded_sim(const ModelFunction& model, int ranks, const std::vector<BatchView>& batches,
                       int rounds = 1, DType compute = DType::f32) {
  return run_sharded(model, compute, ranks, batches, rounds, sim_device());
}

// In the gradient's own unit, unlike worst_difference().
template <class T>
double most_apart(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

double greatest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  return most;
}

// What a pass over one batch gave, and what it took on all ranks.
struct Round {
  std::vector<double> losses, gradients;  // of the first shard
  int64_t pieces = 0, launches = 0, allocations = 0;
};

// Two shards, `rounds` passes over each of the batches in turn.
std::vector<Round> sharded_rounds(const ModelFunction& model, const std::vector<BatchView>& batches,
                                  int rounds) {
  std::vector<Round> all;
  BatchCapacity capacity;
  for (const BatchView& b : batches) capacity = BatchCapacity::merge(capacity, b.extent());
  run_ranks(2, [&](int rank, Transport& transport) {
    SimSetup s(model);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, 2}, s.parameters);
    sequence.reserve(capacity, 1);
    for (size_t i = 0; i < batches.size() * static_cast<size_t>(rounds); ++i) {
      s.clear();
      group->barrier().wait();
      const SimCounters before = sim_counters();
      group->barrier().wait();
      sequence.run({&batches[i % batches.size()], 1}, patience);
      s.stream.synchronize();
      group->barrier().wait();
      const SimCounters after = sim_counters();
      group->barrier().wait();
      if (rank > 0) continue;
      all.push_back({sequence.losses(0), s.gradients(), after.pieces - before.pieces,
                     after.launches - before.launches, after.allocations - before.allocations});
    }
  });
  return all;
}

}  // namespace

TEST_CASE("shards on simulated devices: losses bit for bit, gradients but for the order of sums",
          "[device_shards][slow]") {
  const LogSpace same_arithmetic;
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const ModelFunction& model :
         {ModelFunction(small_unidirectional), ModelFunction(small_bidirectional),
          ModelFunction(convolutional)}) {
      const Graph shape = shape_of(model, compute);
      // Some shards own nothing of some sequences of the second batch.
      RandomBatch first({23, 20, 12}, classes, 1, 6), second({17, 4, 1}, classes, 2, 6);
      const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                              second.view(shape, classes, 4)};
      const Result want = run_whole_sim(model, batches, compute);
      std::vector<BatchView> alone;
      const Apart a(batches[0], shape), b(batches[1], shape);
      alone.insert(alone.end(), a.views.begin(), a.views.end());
      alone.insert(alone.end(), b.views.begin(), b.views.end());
      double tolerance =
          4 * most_apart(run_whole_sim(model, alone, compute).gradients, want.gradients);
      CHECK(tolerance > 0);
      CHECK(tolerance < 1e-4);
      // Within a shard the gradient of h stays f32 from step to step; at a cut it is rounded to the
      // type in which h is stored.
      if (compute == DType::bf16) tolerance = 0x1p-7 * greatest(want.gradients);
      for (const int ranks : {2, 3}) {
        const Result got = run_sharded_sim(model, ranks, batches, 2, compute);
        CAPTURE(name_of(compute), ranks, tolerance);
        CHECK(got.losses == want.losses);
        CHECK(most_apart(got.gradients, want.gradients) <= tolerance);
        CHECK(got.totals.sequences == 6);
        CHECK(got.totals.frames == 23 + 20 + 12 + 17 + 4 + 1);
      }
    }
  }
}

TEST_CASE("shards on simulated devices: losses of frames, and models that pool them",
          "[slow][device_shards]") {
  for (const ModelFunction& model :
       {ModelFunction(framewise), ModelFunction(pooled<false>), ModelFunction(pooled<true>)}) {
    const Graph shape = shape_of(model, DType::f32);
    RandomBatch first({14, 9, 3}, classes, 1), second({7, 1}, classes, 2);
    const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                            second.view(shape, classes, 4)};
    const Result want = run_whole_sim(model, batches);
    for (const int ranks : {2, 3}) {
      const Result got = run_sharded_sim(model, ranks, batches);
      CAPTURE(ranks);
      // Means of at most 24 numbers near 1, added in another order.
      CHECK(std::abs(got.totals.loss - want.totals.loss) <= 24 * 0x1p-23 * want.totals.loss);
      CHECK(most_apart(got.gradients, want.gradients) <= 5e-6);
      CHECK(got.totals.frames == 34);
    }
  }
}

TEST_CASE("shards on simulated devices have the same bits in every order of streams",
          "[slow][device_shards]") {
  const Graph shape = shape_of(small_bidirectional, DType::f32);
  RandomBatch first({15, 9}, classes, 1, 6), second({11}, classes, 2, 6);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  Result want;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    set_sim_options({.seed = seed});
    const Result got = run_sharded_sim(small_bidirectional, 2, batches, 2);
    if (seed == 1) want = got;
    INFO("seed " << seed);
    CHECK(got.losses == want.losses);
    CHECK(got.gradients == want.gradients);
  }
  set_sim_options({});
}

// Waiting is what the cuts cost on a device, so it is counted: an event for each state that leaves,
// one for the losses, one for the place where a batch is staged; never a whole stream.
TEST_CASE("at a border the host waits for the state that leaves, and allocates nothing",
          "[slow][device_shards]") {
  constexpr int64_t micro_batches = 2, layers = 2;
  const Graph shape = shape_of(small_unidirectional, DType::f32);
  RandomBatch first({23, 20}, classes, 1, 6), second({21, 18}, classes, 2, 6);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  run_ranks(2, [&](int, Transport& transport) {
    SimSetup s(small_unidirectional);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, 2}, s.parameters);
    for (int warm = 0; warm < 3; ++warm) sequence.run(batches, patience);
    s.stream.synchronize();
    group->barrier().wait();
    const SimCounters before = sim_counters();
    group->barrier().wait();
    sequence.run(batches, patience);
    group->barrier().wait();
    const SimCounters after = sim_counters();
    group->barrier().wait();
    // (h, c) and alpha go right, (dh, dc) and beta left.
    const int64_t states = 2 * (layers + 1) * micro_batches;
    const int64_t waits = after.event_waits - before.event_waits;
    RANK_CHECK(after.stream_waits == before.stream_waits);
    RANK_CHECK(after.allocations == before.allocations);
    RANK_CHECK(waits >= states + micro_batches);
    RANK_CHECK(waits <= states + micro_batches + 2 * micro_batches);
  });
}

// A recorded time loop has as many launches as its capacity has frames.
TEST_CASE("short batches of shards on simulated devices run in graphs of their own",
          "[slow][device_shards]") {
  // Shards of 100 frames get 52 at the most, or 54 where three of them are one; of 20 frames 12 at
  // the most, whose bucket is that of 16. Behind the subsampling 26 steps and 8, or 18 and 6.
  // A step is a product and the cells, and as much again where there is a projection, of each
  // direction by itself, forward and backward.
  struct Case {
    ModelFunction model;
    int64_t steps;     // more
    int64_t recorded;  // parts: exchanges, and what is between them
  };
  const Case cases[] = {{small_unidirectional, (26 - 8) * 2 * 4, 11},
                        {small_bidirectional, (54 - 16) * 2 * 4 + (18 - 6) * 2 * 8, 14}};
  for (const auto& [model, steps, recorded] : cases) {
    const Graph shape = shape_of(model, DType::f32);
    RandomBatch large({100, 90}, classes, 1, 2), small(std::vector<int32_t>(7, 20), classes, 2, 2);
    const std::vector<BatchView> views = {large.view(shape, classes, 3),
                                          small.view(shape, classes, 4)};
    const std::vector<Round> only_large = sharded_rounds(model, {views[0]}, 1);
    const std::vector<Round> only_small = sharded_rounds(model, {views[1]}, 1);
    // As it is, recorded, launched, of each size in turn.
    const std::vector<Round> both = sharded_rounds(model, views, 3);
    for (size_t i = 0; i < both.size(); ++i) {
      CAPTURE(i);
      const Round& alone = (i % 2 == 0 ? only_large : only_small)[0];
      CHECK(both[i].losses == alone.losses);
      CHECK(both[i].gradients == alone.gradients);
      CHECK(both[i].pieces == both[i % 2].pieces);
      CHECK(both[i].allocations == 0);
      CHECK(both[i].launches == (i < 2 ? 0 : 2 * recorded));
    }
    CHECK(both[0].pieces - both[1].pieces == 2 * steps);
  }
}

TEST_CASE("a shard's memory on a device is that of its frames", "[device_shards]") {
  const BatchCapacity batch{{12000, 12000, 1}, 40, 40};
  for (const ModelFunction& model :
       {ModelFunction(small_unidirectional), ModelFunction(small_bidirectional)}) {
    const auto arena_of = [&](int ranks) {
      std::mutex mutex;
      size_t most = 0;
      run_ranks(ranks, [&](int, Transport& transport) {
        SimSetup s(model);
        const auto group = make_ring_group(transport);
        SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, ranks}, s.parameters);
        sequence.reserve(batch, 1);
        const std::lock_guard lock(mutex);
        most = std::max(most, sequence.arena_bytes());
      });
      return static_cast<double>(most);
    };
    const double one = arena_of(1);
    CHECK(arena_of(2) <= 0.52 * one);
    CHECK(arena_of(4) <= 0.27 * one);
  }
}

TEST_CASE("a shard that fails ends the others, whatever their devices were given",
          "[device_shards]") {
  const Graph shape = shape_of(small_unidirectional, DType::f32);
  RandomBatch batch({16, 12}, classes, 1, 2);
  const std::vector<BatchView> batches = {batch.view(shape, classes, 3)};
  const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
    SimSetup s(small_unidirectional);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, 3}, s.parameters);
    sequence.run(batches, patience);
    if (rank == 2) throw Error("out of luck");
    sequence.run(batches, patience);
  });
  CHECK(outcome.first_failed == 2);
  for (const size_t rank : {0u, 1u}) {
    REQUIRE(outcome.errors[rank]);
    try {
      std::rethrow_exception(outcome.errors[rank]);
    } catch (const CommError& e) {
      CHECK_THAT(e.what(), Contains("out of luck"));
    }
  }
}

TEST_CASE("chunks one after the other on a simulated device give the whole",
          "[slow][device_shards]") {
  const LogSpace same_arithmetic;
  const ModelFunction model = GENERATE(ModelFunction(small_unidirectional), ModelFunction(causal));
  const Graph shape = shape_of(model, DType::f32);
  RandomBatch first({23, 20, 12}, classes, 1, 2), second({31, 4, 1}, classes, 2, 2);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  const Result want = run_whole_sim(model, batches);
  const Apart a(batches[0], shape), b(batches[1], shape);
  std::vector<BatchView> alone = a.views;
  alone.insert(alone.end(), b.views.begin(), b.views.end());
  const double tolerance = 4 * most_apart(run_whole_sim(model, alone).gradients, want.gradients);
  const auto chunked = [&](int32_t frames, StateGradients states) {
    SimSetup s(model);
    ChunkedTraining training(s.graph, s.outputs.loss, s.context, s.parameters, frames, states);
    Result r;
    for (const BatchView& batch : batches) {
      training.run(batch);
      r.losses.insert(r.losses.end(), training.losses().begin(), training.losses().end());
    }
    r.gradients = s.gradients();
    return r;
  };
  for (const int32_t frames : {6, 10, 400}) {
    CAPTURE(frames, tolerance);
    const Result carried = chunked(frames, StateGradients::carried);
    CHECK(carried.losses == want.losses);
    CHECK(most_apart(carried.gradients, want.gradients) <= tolerance);
    const Result cut = chunked(frames, StateGradients::cut);
    CHECK(cut.losses == want.losses);
    const double truncated = most_apart(cut.gradients, want.gradients);
    CHECK((frames > 31 ? truncated <= tolerance : truncated > 100 * tolerance));
  }
}

// The short ones are last chunks, and batches that are shorter than a chunk.
TEST_CASE("short batches of chunks on a simulated device run in graphs of their own",
          "[slow][device_shards]") {
  const Graph shape = shape_of(small_unidirectional, DType::f32);
  RandomBatch chunk({60, 50}, classes, 1, 2), small(std::vector<int32_t>(7, 20), classes, 2, 2),
      two({80, 40}, classes, 3, 2), longer({120, 40}, classes, 4, 2);
  const std::vector<BatchView> views = {chunk.view(shape, classes, 3),
                                        small.view(shape, classes, 4), two.view(shape, classes, 5),
                                        longer.view(shape, classes, 6)};
  const auto rounds = [&](const std::vector<BatchView>& batches, int times) {
    BatchCapacity capacity;
    for (const BatchView& b : batches) capacity = BatchCapacity::merge(capacity, b.extent());
    SimSetup s(small_unidirectional);
    ChunkedTraining training(s.graph, s.outputs.loss, s.context, s.parameters, 64,
                             StateGradients::cut);
    training.reserve(capacity);
    std::vector<Round> all;
    for (size_t i = 0; i < batches.size() * static_cast<size_t>(times); ++i) {
      s.clear();
      const SimCounters before = sim_counters();
      training.run(batches[i % batches.size()]);
      const SimCounters after = sim_counters();
      all.push_back({training.losses(), s.gradients(), after.pieces - before.pieces,
                     after.launches - before.launches, after.allocations - before.allocations});
    }
    return all;
  };
  std::vector<Round> only;
  for (const BatchView& view : views) only.push_back(rounds({view}, 1)[0]);
  // Each size as it is, recorded, launched.
  const std::vector<Round> all = rounds(views, 3);
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const Round& alone = only[i % 4];
    CHECK(all[i].losses == alone.losses);
    CHECK(all[i].gradients == alone.gradients);
    CHECK(all[i].pieces == all[i % 4].pieces);
    CHECK(all[i].allocations == 0);
  }
  // A pass each way, and another one forward of all chunks but the last.
  const int64_t launches[] = {2, 2, 5, 5};
  for (size_t i = 0; i < 4; ++i) CHECK(all[8 + i].launches == launches[i]);
  // 64 frames and 24; in the last chunk 64 and 16. Half as many steps, of a product and the cells
  // in each of two layers, forward and backward.
  CHECK(all[0].pieces - all[1].pieces == (32 - 12) * 8);
  CHECK(all[3].pieces - all[2].pieces == (32 - 8) * 8);
}

TEST_CASE("a session trains in chunks on a simulated device as on a cpu", "[slow][device_shards]") {
  const Graph shape = shape_of(small_unidirectional, DType::f32);
  RandomBatch first({23, 20, 12}, classes, 1, 2), second({31, 4}, classes, 2, 2);
  const BatchView views[] = {first.view(shape, classes, 3), second.view(shape, classes, 4)};
  struct Curve {
    std::vector<StepResult> steps;
    std::vector<float> weights;
  };
  const auto train = [&](DeviceKind device) {
    SessionOptions o;
    o.device = device;
    o.threads = 1;
    o.tbptt = 8;
    o.optimizer.kind = OptimizerOptions::sgd;
    o.optimizer.learning_rate = 0.2;
    Session session(small_unidirectional, o);
    Curve c;
    for (int step = 0; step < 4; ++step) {
      session.accumulate(views[0]);
      session.accumulate(views[1]);
      c.steps.push_back(session.update());
    }
    const TensorView w = session.parameters().weights();
    c.weights.resize(static_cast<size_t>(w.numel()));
    Stream stream = session.context().device->make_stream();
    session.context().device->copy(stream, c.weights.data(), w.data, w.bytes());
    stream.synchronize();
    return c;
  };
  const Curve cpu = train(DeviceKind::cpu), sim = train(DeviceKind::sim);
  for (size_t i = 0; i < cpu.steps.size(); ++i) {
    CHECK(sim.steps[i].sequences == 5);
    CHECK(sim.steps[i].frames == 23 + 20 + 12 + 31 + 4);
    CHECK(sim.steps[i].loss == Approx(cpu.steps[i].loss).epsilon(1e-5));
    CHECK(sim.steps[i].gradient_norm == Approx(cpu.steps[i].gradient_norm).epsilon(1e-4));
  }
  CHECK(sim.steps.back().loss < sim.steps.front().loss);
  CHECK(most_apart(sim.weights, cpu.weights) <= 1e-5);
}
