// Sequences cut in time over ranks with simulated devices give what one such device gives.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "comm/in_process.h"
#include "comm/process_group.h"
#include "comm/run_ranks.h"
#include "engine/parallel/chunked_training.h"
#include "engine/parallel/sequence.h"
#include "engine/session.h"
#include "kernels/ops.h"
#include "kernels/simt/sim_device.h"
#include "tests/engine/gradient_check.h"
#include "tests/rank_check.h"

using namespace rondo;
using Catch::Contains;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;
constexpr auto patience = std::chrono::seconds(60);

Outputs unidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::stack_frames(g, x, 2);
  x = layers::lstm(g, x, "encoder", {.hidden = 9, .layers = 2, .dropout = 0.3, .layer_norm = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

Outputs bidirectional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lower", {.hidden = 8, .bidirectional = true});
  x = layers::stack_frames(g, x, 3);
  x = layers::lstm(g, x, "upper", {.hidden = 12, .bidirectional = true, .projection = 7});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Of both sides at the input, ahead, and of the past at another level.
Outputs convolutional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::relu(g, layers::conv(g, x, "front", {.channels = 9, .kernel = 4}));
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

Outputs framewise(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::cross_entropy(g, logits, "targets"), logits};
}

template <bool last>
Outputs pooled(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "encoder", {.hidden = 8, .bidirectional = true});
  x = last ? layers::last_frame(g, x) : layers::mean_pool(g, x);
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::cross_entropy(g, logits, "targets"), logits};
}

// The variant of ctc whose arithmetic is that of chunks, while it lives.
struct LogSpace {
  LogSpace() { prefer_variant("ctc", "log_space"); }
  ~LogSpace() { prefer_variant("ctc", ""); }
};

struct Result {
  std::vector<double> losses;  // by batch and sequence
  std::vector<float> gradients;
  LossTotals totals;
};

// A model's training graph and parameters on the simulated device.
struct Setup {
  Outputs outputs;  // before the graph, whose making sets it
  Graph graph;
  Device& device = sim_device();
  Stream stream = device.make_stream();
  Context context{Backend::sim, &device, &stream, nullptr};
  Parameters parameters;

  explicit Setup(const ModelFunction& model, DType compute = DType::f32)
      : graph(training_graph(model, compute, outputs)), parameters(graph, device) {
    parameters.initialize(4);
    clear();
  }
  void clear() {
    const TensorView g = parameters.gradients();
    device.fill_bytes(stream, g.data, 0, g.bytes());
  }
  std::vector<float> gradients() {
    const TensorView g = parameters.gradients();
    std::vector<float> values(static_cast<size_t>(g.numel()));
    device.copy(stream, values.data(), g.data, g.bytes());
    stream.synchronize();
    return values;
  }

 private:
  static Graph training_graph(const ModelFunction& model, DType compute, Outputs& outputs) {
    Graph g;
    g.compute = compute;
    outputs = model(g);
    g.keep(outputs.loss);
    append_backward(g, outputs.loss);
    return g;
  }
};

Result run_whole(const ModelFunction& model, const std::vector<BatchView>& batches,
                 DType compute = DType::f32) {
  Setup s(model, compute);
  Result r;
  for (const BatchView& batch : batches) {
    Plan plan(s.graph, s.context, batch.extent(), s.parameters);
    plan.load(batch);
    plan.run();
    std::vector<float> losses(static_cast<size_t>(plan.live_rows(s.graph.shape(s.outputs.loss))));
    plan.read(s.outputs.loss, losses.data(), losses.size() * sizeof(float));
    for (float loss : losses) {
      r.losses.push_back(static_cast<double>(loss));
      if (std::isfinite(loss)) r.totals.loss += static_cast<double>(loss);
    }
  }
  r.gradients = s.gradients();
  return r;
}

// `rounds` runs of the same batches; the last one's result.
Result run_sharded(const ModelFunction& model, int ranks, const std::vector<BatchView>& batches,
                   int rounds = 1, DType compute = DType::f32) {
  std::mutex mutex;
  Result r;
  run_ranks(ranks, [&](int rank, Transport& transport) {
    Setup s(model, compute);
    const auto group = make_ring_group(transport);
    SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, ranks}, s.parameters);
    for (int round = 0; round < rounds; ++round) {
      s.clear();
      sequence.run(batches, patience);
    }
    const std::lock_guard lock(mutex);
    const std::vector<float> mine = s.gradients();
    r.gradients.resize(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) r.gradients[i] += mine[i];
    r.totals.loss += sequence.totals().loss;
    r.totals.sequences += sequence.totals().sequences;
    r.totals.frames += sequence.totals().frames;
    if (rank != 0) return;
    for (size_t m = 0; m < batches.size(); ++m) {
      const auto& losses = sequence.losses(m);
      r.losses.insert(r.losses.end(), losses.begin(), losses.end());
    }
  });
  return r;
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

double greatest(const std::vector<float>& values) {
  double most = 0;
  for (float v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

// Sequence by sequence instead of all at once: what the order of sums may change.
struct Apart {
  std::vector<BatchPart> parts;
  std::vector<BatchView> views;

  Apart(const BatchView& whole, const Graph& shape) {
    std::vector<FrameRange> nothing;
    for (int32_t length : whole.layout->lengths) nothing.push_back({length, length});
    for (size_t n = 0; n < nothing.size(); ++n) {
      std::vector<FrameRange> one = nothing;
      one[n].begin = 0;
      parts.emplace_back(whole, shape, one, 1);
    }
    for (const BatchPart& part : parts) views.push_back(part.view());
  }
};

Graph shape_of(const ModelFunction& model, DType compute = DType::f32) {
  Graph g;
  g.compute = compute;
  model(g);
  return g;
}

}  // namespace

TEST_CASE("shards on simulated devices: losses bit for bit, gradients but for the order of sums",
          "[device_shards]") {
  const LogSpace same_arithmetic;
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const ModelFunction& model : {ModelFunction(unidirectional), ModelFunction(bidirectional),
                                       ModelFunction(convolutional)}) {
      const Graph shape = shape_of(model, compute);
      // Of the second, some shards own nothing of some sequences.
      RandomBatch first({23, 20, 12}, classes, 1, 6), second({17, 4, 1}, classes, 2, 6);
      const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                              second.view(shape, classes, 4)};
      const Result want = run_whole(model, batches, compute);
      std::vector<BatchView> alone;
      const Apart a(batches[0], shape), b(batches[1], shape);
      alone.insert(alone.end(), a.views.begin(), a.views.end());
      alone.insert(alone.end(), b.views.begin(), b.views.end());
      double tolerance =
          4 * worst_difference(run_whole(model, alone, compute).gradients, want.gradients);
      CHECK(tolerance > 0);
      CHECK(tolerance < 1e-4);
      // Within a shard the gradient of h stays f32 from step to step; at a cut it is rounded to the
      // type in which h is stored.
      if (compute == DType::bf16) tolerance = 0x1p-7 * greatest(want.gradients);
      for (const int ranks : {2, 3}) {
        const Result got = run_sharded(model, ranks, batches, 2, compute);
        CAPTURE(name_of(compute), ranks, tolerance);
        CHECK(got.losses == want.losses);
        CHECK(worst_difference(got.gradients, want.gradients) <= tolerance);
        CHECK(got.totals.sequences == 6);
        CHECK(got.totals.frames == 23 + 20 + 12 + 17 + 4 + 1);
      }
    }
  }
}

TEST_CASE("shards on simulated devices: losses of frames, and models that pool them",
          "[device_shards]") {
  for (const ModelFunction& model :
       {ModelFunction(framewise), ModelFunction(pooled<false>), ModelFunction(pooled<true>)}) {
    const Graph shape = shape_of(model);
    RandomBatch first({14, 9, 3}, classes, 1), second({7, 1}, classes, 2);
    const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                            second.view(shape, classes, 4)};
    const Result want = run_whole(model, batches);
    for (const int ranks : {2, 3}) {
      const Result got = run_sharded(model, ranks, batches);
      CAPTURE(ranks);
      // Means of at most 24 numbers near 1, added in another order.
      CHECK(std::abs(got.totals.loss - want.totals.loss) <= 24 * 0x1p-23 * want.totals.loss);
      CHECK(worst_difference(got.gradients, want.gradients) <= 5e-6);
      CHECK(got.totals.frames == 34);
    }
  }
}

TEST_CASE("shards on simulated devices have the same bits in every order of streams",
          "[device_shards]") {
  const Graph shape = shape_of(bidirectional);
  RandomBatch first({15, 9}, classes, 1, 6), second({11}, classes, 2, 6);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  Result want;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    set_sim_options({.seed = seed});
    const Result got = run_sharded(bidirectional, 2, batches, 2);
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
          "[device_shards]") {
  constexpr int64_t micro_batches = 2, layers = 2;
  const Graph shape = shape_of(unidirectional);
  RandomBatch first({23, 20}, classes, 1, 6), second({21, 18}, classes, 2, 6);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  run_ranks(2, [&](int, Transport& transport) {
    Setup s(unidirectional);
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

TEST_CASE("a shard's memory on a device is that of its frames", "[device_shards]") {
  const BatchCapacity batch{{12000, 12000, 1}, 40, 40};
  for (const ModelFunction& model : {ModelFunction(unidirectional), ModelFunction(bidirectional)}) {
    const auto planned = [&](int ranks) {
      std::mutex mutex;
      size_t most = 0;
      run_ranks(ranks, [&](int, Transport& transport) {
        Setup s(model);
        const auto group = make_ring_group(transport);
        SequenceRank sequence(s.graph, s.outputs.loss, s.context, *group, {0, ranks}, s.parameters);
        sequence.reserve(batch, 1);
        const std::lock_guard lock(mutex);
        most = std::max(most, sequence.arena_bytes());
      });
      return static_cast<double>(most);
    };
    const double one = planned(1);
    CHECK(planned(2) <= 0.52 * one);
    CHECK(planned(4) <= 0.27 * one);
  }
}

TEST_CASE("a shard that fails ends the others, whatever their devices were given",
          "[device_shards]") {
  const Graph shape = shape_of(unidirectional);
  RandomBatch batch({16, 12}, classes, 1, 2);
  const std::vector<BatchView> batches = {batch.view(shape, classes, 3)};
  const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
    Setup s(unidirectional);
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

TEST_CASE("chunks one after the other on a simulated device give the whole", "[device_shards]") {
  const LogSpace same_arithmetic;
  const ModelFunction model = GENERATE(ModelFunction(unidirectional), ModelFunction(causal));
  const Graph shape = shape_of(model);
  RandomBatch first({23, 20, 12}, classes, 1, 2), second({31, 4, 1}, classes, 2, 2);
  const std::vector<BatchView> batches = {first.view(shape, classes, 3),
                                          second.view(shape, classes, 4)};
  const Result want = run_whole(model, batches);
  const Apart a(batches[0], shape), b(batches[1], shape);
  std::vector<BatchView> alone = a.views;
  alone.insert(alone.end(), b.views.begin(), b.views.end());
  const double tolerance = 4 * worst_difference(run_whole(model, alone).gradients, want.gradients);
  const auto chunked = [&](int32_t frames, StateGradients states) {
    Setup s(model);
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
    CHECK(worst_difference(carried.gradients, want.gradients) <= tolerance);
    const Result cut = chunked(frames, StateGradients::cut);
    CHECK(cut.losses == want.losses);
    const double truncated = worst_difference(cut.gradients, want.gradients);
    CHECK((frames > 31 ? truncated <= tolerance : truncated > 100 * tolerance));
  }
}

TEST_CASE("a session trains in chunks on a simulated device as on a cpu", "[device_shards]") {
  const Graph shape = shape_of(unidirectional);
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
    Session session(unidirectional, o);
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
  CHECK(worst_difference(sim.weights, cpu.weights) <= 1e-5);
}
