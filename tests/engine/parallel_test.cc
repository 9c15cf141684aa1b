// Ranks as threads: data parallelism and a two-stage pipeline give what one rank gives.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "comm/process_group.h"
#include "comm/run_ranks.h"
#include "engine/parallel/data_parallel.h"
#include "engine/parallel/pipeline.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "lower", {.hidden = 16, .bidirectional = true});
  x = layers::dropout(g, x, "dropout", 0.2);
  x = layers::lstm(g, x, "upper", {.hidden = 12});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// The graph of `model` on two stages, the loss with the upper one.
struct Staged {
  Graph graph;
  ValueId loss;
  Staged() {
    ValueId x = layers::input_frames(graph, "features", 6);
    x = layers::lstm(graph, x, "lower", {.hidden = 16, .bidirectional = true});
    x = layers::dropout(graph, x, "dropout", 0.2);
    graph.stage = 1;
    x = layers::lstm(graph, x, "upper", {.hidden = 12});
    loss = layers::ctc_loss(graph, layers::linear(graph, x, "out", classes));
    append_backward(graph, loss);
  }
};

SessionOptions options() {
  SessionOptions o;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = OptimizerOptions::sgd;
  o.optimizer.learning_rate = 0.5;
  return o;
}

std::vector<float> weights_of(const Session& s) {
  const TensorView w = s.parameters().weights();
  return {w.as<float>(), w.as<float>() + w.numel()};
}

}  // namespace

TEST_CASE("two ranks that sum gradients take the step of one rank with both batches") {
  Graph shape_only;
  model(shape_only);
  RandomBatch first({12, 9, 4}, classes, 1), second({17, 3}, classes, 2);
  const BatchView a = first.view(shape_only, classes, 3), b = second.view(shape_only, classes, 4);

  Session single(model, options());
  const std::vector<float> start = weights_of(single);
  single.accumulate(a);
  single.accumulate(b);
  const StepResult want = single.update();

  std::mutex mutex;
  std::vector<std::vector<float>> results(2);
  run_ranks(2, [&](int rank, Transport& transport) {
    auto group = make_ring_group(transport);
    GroupReducer reducer(*group);
    Session session(model, options());
    session.set_reducer(&reducer);
    const StepResult got = session.train_step(rank == 0 ? a : b);
    std::lock_guard lock(mutex);
    results[static_cast<size_t>(rank)] = weights_of(session);
    CHECK(got.sequences == want.sequences);
    CHECK(got.frames == want.frames);
    CHECK(got.loss == Approx(want.loss).epsilon(1e-6));
    CHECK(got.gradient_norm == Approx(want.gradient_norm).epsilon(1e-5));
  });
  CHECK(results[0] == results[1]);  // bit for bit
  const std::vector<float> single_weights = weights_of(single);
  double moved = 0, difference = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    moved = std::max(moved, std::abs(static_cast<double>(single_weights[i]) - start[i]));
    difference =
        std::max(difference, std::abs(static_cast<double>(single_weights[i]) - results[0][i]));
  }
  CHECK(moved > 1e-3);
  CHECK(difference <= 1e-6);  // the order of summation differs
}

TEST_CASE("two pipeline stages give the gradients of one rank, bit for bit") {
  const Staged whole;
  std::vector<RandomBatch> batches;
  batches.emplace_back(std::vector<int32_t>{12, 9, 4}, classes, 1);
  batches.emplace_back(std::vector<int32_t>{17, 3}, classes, 2);
  batches.emplace_back(std::vector<int32_t>{5, 5, 5, 1}, classes, 3);
  std::vector<BatchView> views;
  BatchCapacity capacity;
  for (RandomBatch& b : batches) {
    views.push_back(b.view(whole.graph, classes, 7));
    capacity = BatchCapacity::merge(capacity, views.back().extent());
  }
  const auto initialize = [](Parameters& p) {
    p.initialize(9);
    const TensorView g = p.gradients();
    std::fill_n(g.as<float>(), g.numel(), 0.0f);
  };

  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  const Context context{Backend::cpu, &cpu_device(), &stream, &pool};
  Parameters single(whole.graph, cpu_device());
  initialize(single);
  Plan plan(whole.graph, context, capacity, single);
  for (const BatchView& v : views) {
    plan.load(v);
    plan.run();
  }

  const PipelineSchedule schedule = gpipe_schedule(2, 3);
  std::mutex mutex;
  int compared = 0;
  run_ranks(2, [&](int rank, Transport& transport) {
    Stream mine = cpu_device().make_stream();
    ThreadPool threads(1);
    const Context here{Backend::cpu, &cpu_device(), &mine, &threads};
    Parameters parameters(whole.graph, cpu_device(), rank);
    initialize(parameters);
    PipelineRank stage(whole.graph, here, transport, schedule, capacity, parameters);
    stage.run(views, std::chrono::seconds(20));
    std::lock_guard lock(mutex);
    for (const auto& e : parameters.entries()) {
      const TensorView got = parameters.gradient(e.name), want = single.gradient(e.name);
      const bool same =
          std::equal(got.as<float>(), got.as<float>() + got.numel(), want.as<float>());
      INFO(e.name);
      CHECK(same);
      ++compared;
    }
  });
  CHECK(compared == static_cast<int>(single.entries().size()));
}

TEST_CASE("a value that jumps over a stage is refused") {
  Graph g;
  const ValueId x = layers::linear(g, layers::input_frames(g, "features", 6), "a", 5);
  g.stage = 2;
  const ValueId loss = layers::ctc_loss(g, layers::linear(g, x, "b", 4));
  append_backward(g, loss);
  run_ranks(1, [&](int, Transport& transport) {
    Stream stream = cpu_device().make_stream();
    ThreadPool pool(1);
    const Context context{Backend::cpu, &cpu_device(), &stream, &pool};
    Parameters parameters(g, cpu_device());
    const PipelineSchedule schedule = gpipe_schedule(1, 1);
    CHECK_THROWS_WITH(PipelineRank(g, context, transport, schedule, {}, parameters),
                      Catch::Contains("crosses from stage 0 to stage 2"));
  });
}
