// Stages on ranks (threads): every schedule gives the gradients of one rank, bit for bit.
#include <cmath>
#include <map>
#include <mutex>

#include "comm/in_process/run_ranks.h"
#include "engine/placement.h"
#include "engine/steps/step_runner.h"
#include "kernels/base/cpu/parallel.h"
#include "tests/catch.h"
#include "tests/comm/decorators.h"
#include "tests/comm/gpipe.h"
#include "tests/engine/gradient_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;

// Six layers (subsampling, residual connections, dropout), on stages as `counts` says.
struct Model {
  Graph graph;
  ValueId loss;
  std::vector<ModelLayer> layers;

  explicit Model(const std::vector<int>& counts, DType compute = DType::f32) {
    Graph& g = graph;
    g.compute = compute;
    ValueId x = layers::stack_frames(g, layers::input_frames(g, "features", 6), 2);
    x = layers::lstm(
        g, x, "a",
        {.hidden = 8, .layers = 3, .bidirectional = true, .dropout = 0.2, .residual = true});
    x = layers::layer_norm(g, x, "norm");
    x = layers::lstm(g, x, "b", {.hidden = 12});
    loss = layers::ctc_loss(g, layers::linear(g, x, "out", classes));
    layers = find_layers(g);
    if (!counts.empty()) place_layers(g, layers, counts);
    append_staged_backward(g, loss);
  }
};

// Micro-batches of different lengths, one of them empty.
struct Batches {
  std::vector<RandomBatch> owned;
  std::vector<BatchView> views;

  Batches(const Graph& g, int count) {
    const std::vector<std::vector<int32_t>> lengths = {{12, 9, 4}, {17, 3}, {}, {6, 5, 5, 2}};
    owned.reserve(static_cast<size_t>(count));
    for (int m = 0; m < count; ++m) {
      owned.emplace_back(lengths[static_cast<size_t>(m) % lengths.size()], classes,
                         static_cast<unsigned>(m), 2);
      views.push_back(owned.back().view(g, classes, 70u + static_cast<unsigned>(m)));
      views.back().step_seed = 5u + static_cast<unsigned>(m);
    }
  }
};

struct Cpu {
  Stream stream = cpu_device().make_stream();
  ThreadPool pool{1};
  Context context{Backend::cpu, &cpu_device(), &stream, &pool};
};

using Gradients = std::map<std::string, std::vector<float>>;

void add_gradients(const Parameters& parameters, Gradients& to) {
  for (const auto& e : parameters.entries()) {
    const TensorView g = parameters.gradient(e.name);
    to[e.name].assign(g.as<float>(), g.as<float>() + g.numel());
  }
}

// Without a pipeline.
Gradients expected(const Model& model, const Batches& batches) {
  Cpu cpu;
  BatchCapacity capacity;
  for (const BatchView& v : batches.views) capacity = BatchCapacity::merge(capacity, v.extent());
  Parameters parameters(model.graph, cpu_device());
  parameters.initialize(9);
  BoundGraph bound(model.graph, cpu.context, capacity, parameters);
  for (const BatchView& v : batches.views) {
    if (v.layout->extent.sequences == 0) continue;
    bound.load(v);
    bound.run();
  }
  Gradients all;
  add_gradients(parameters, all);
  return all;
}

struct PipelineResult {
  Gradients gradients;
  double loss = 0;
  std::vector<size_t> arena_bytes, weight_bytes;
  std::vector<PipelineTimeline> timelines;
};

PipelineResult run_pipeline(const Model& model, const Batches& batches,
                            const PipelineSchedule& schedule, PipelineOptions options = {}) {
  PipelineResult result;
  const size_t ranks = schedule.actions.size();
  result.arena_bytes.resize(ranks);
  result.weight_bytes.resize(ranks);
  result.timelines.resize(1);
  result.timelines[0].ranks.resize(ranks);
  std::mutex mutex;
  options.timeout = std::chrono::seconds(20);
  run_ranks(schedule.stages(), [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    Cpu cpu;
    Parameters parameters(model.graph, cpu_device(), rank);
    parameters.initialize(9);
    StepRunner pipeline(model.graph, cpu.context, group.get(), schedule, parameters, options);
    double loss = 0;
    StepHooks hooks;
    hooks.after_loss = [&](int, const BoundGraph& bound) {
      const TensorView losses = bound.view(model.loss);
      for (int64_t i = 0; i < bound.live_rows(model.graph.shape(model.loss)); ++i) {
        loss += static_cast<double>(losses.as<float>()[i]);
      }
    };
    pipeline.reserve(batches.views[0].extent());  // the second is longer
    pipeline.run(batches.views, hooks);
    const std::lock_guard lock(mutex);
    add_gradients(parameters, result.gradients);
    result.loss += loss;
    result.arena_bytes[static_cast<size_t>(rank)] = pipeline.arena_bytes();
    result.weight_bytes[static_cast<size_t>(rank)] = parameters.weights().bytes();
    result.timelines[0].ranks[static_cast<size_t>(rank)] = pipeline.timeline();
  });
  return result;
}

void check_equal(const Gradients& got, const Gradients& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, values] : want) {
    INFO(name);
    CHECK((got.at(name) == values));  // bit for bit
  }
}

struct Case {
  std::string kind;
  int stages, micro_batches;
  std::vector<int> counts;
};

PipelineSchedule schedule_of(const Case& c) {
  if (c.kind == "gpipe") return gpipe_schedule(c.stages, c.micro_batches);
  return make_schedule(schedule_kind(c.kind), c.stages, c.micro_batches);
}

}  // namespace

TEST_CASE("every schedule gives the gradients of one rank, bit for bit", "[pipeline]") {
  const Case c = GENERATE(Case{"gpipe", 2, 5, {4, 2}}, Case{"1f1b", 1, 2, {6}},
                          Case{"1f1b", 3, 7, {1, 2, 3}}, Case{"zero_bubble", 4, 6, {1, 1, 2, 2}},
                          Case{"1f1b", 3, 2, {1, 2, 3}}, Case{"zero_bubble", 3, 2, {1, 2, 3}});
  const DType compute = GENERATE(DType::f32, DType::bf16);
  INFO(c.kind << " of " << c.stages << " stages, " << name_of(compute));
  const Model whole({}, compute), cut(c.counts, compute);
  const Batches batches(whole.graph, c.micro_batches);
  const Gradients want = expected(whole, batches);
  const PipelineResult got = run_pipeline(cut, batches, schedule_of(c));
  check_equal(got.gradients, want);
  CHECK(std::isfinite(got.loss));
  double largest = 0;
  for (float x : want.at("a.0.weight_ih")) largest = std::max(largest, std::abs(double{x}));
  CHECK(largest > 1e-3);
}

TEST_CASE("bf16 on the wire rounds what crosses, and only that", "[pipeline]") {
  const Model whole({}), cut({3, 3});
  const Batches batches(whole.graph, 4);
  const Gradients want = expected(whole, batches);
  PipelineOptions options;
  options.wire = Wire::bf16;
  const PipelineResult got =
      run_pipeline(cut, batches, make_schedule(ScheduleKind::one_f_one_b, 2, 4), options);
  double worst = 0, largest = 0;
  for (const auto& [name, values] : want) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(double{got.gradients.at(name)[i]} - double{values[i]});
      CHECK_FALSE(std::isnan(difference));
      worst = std::max(worst, difference);
      largest = std::max(largest, std::abs(double{values[i]}));
    }
  }
  CHECK(worst > 0);
  CHECK(worst < 0.02 * largest);  // 2^-9 relative per value, a handful of layers deep
}

TEST_CASE("a rank holds the weights of its stages and as many graphs as promised", "[pipeline]") {
  const Model whole({}), cut({3, 3});
  const Batches batches(whole.graph, 8);
  const PipelineResult few =
      run_pipeline(cut, batches, make_schedule(ScheduleKind::one_f_one_b, 2, 8));
  const PipelineResult all = run_pipeline(cut, batches, gpipe_schedule(2, 8));
  CHECK(all.arena_bytes[0] == 4 * few.arena_bytes[0]);  // 8 graphs and 2
  CHECK(all.arena_bytes[1] == 8 * few.arena_bytes[1]);
  Parameters everything(whole.graph, cpu_device());
  CHECK(few.weight_bytes[0] + few.weight_bytes[1] == everything.weights().bytes());
  CHECK(few.weight_bytes[0] > 0);
  CHECK(few.weight_bytes[1] > 0);
}

TEST_CASE("a timeline has every action, computations in order and apart", "[pipeline]") {
  const Model cut({3, 3});
  const Batches batches(cut.graph, 2);
  PipelineOptions options;
  options.timeline = true;
  const PipelineSchedule schedule = make_schedule(ScheduleKind::zero_bubble, 2, 2);
  const PipelineTimeline t = run_pipeline(cut, batches, schedule, options).timelines[0];
  for (size_t r = 0; r < 2; ++r) {
    CHECK(t.ranks[r].size() == schedule.actions[r].size());
    double end = 0;
    for (const TimedAction& a : t.ranks[r]) {
      CHECK(a.end >= a.start);
      if (a.action.peer >= 0 || a.action.kind == ActionKind::reduce) continue;
      CHECK(a.start >= end);
      end = a.end;
    }
  }
  CHECK(t.duration() > 0);
}

TEST_CASE("a rank that fails in the middle of a step ends the others", "[pipeline]") {
  const Model cut({2, 2, 2});
  const Batches batches(cut.graph, 6);
  const PipelineSchedule schedule = make_schedule(ScheduleKind::one_f_one_b, 3, 6);
  const RankOutcome outcome = run_ranks_and_collect(3, [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    Cpu cpu;
    Parameters parameters(cut.graph, cpu_device(), rank);
    StepRunner pipeline(cut.graph, cpu.context, group.get(), schedule, parameters);
    StepHooks hooks;
    hooks.after_loss = [](int micro_batch, const BoundGraph&) {
      if (micro_batch == 3) throw Error("the disk is full");
    };
    pipeline.run(batches.views, hooks);
  });
  CHECK(outcome.first_failed == 2);
  for (size_t r : {0u, 1u}) {
    REQUIRE(outcome.errors[r]);
    CHECK_THROWS_AS(std::rethrow_exception(outcome.errors[r]), CommError);
    CHECK_THROWS_WITH(std::rethrow_exception(outcome.errors[r]),
                      Catch::Contains("the disk is full"));
  }
}

TEST_CASE("a value that jumps over a stage is refused", "[pipeline]") {
  Graph g;
  const ValueId x = layers::linear(g, layers::input_frames(g, "features", 6), "a", 5);
  g.stage = 2;
  const ValueId loss = layers::ctc_loss(g, layers::linear(g, x, "b", 4));
  append_backward(g, loss);
  run_ranks(1, [&](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    Cpu cpu;
    Parameters parameters(g, cpu_device());
    CHECK_THROWS_WITH(StepRunner(g, cpu.context, group.get(), gpipe_schedule(1, 1), parameters),
                      Catch::Contains("crosses from stage 0 to stage 2"));
  });
}

TEST_CASE("layers are found by their weights", "[placement]") {
  const auto names = [](const std::vector<ModelLayer>& layers) {
    std::string text;
    for (const ModelLayer& l : layers) text += l.name + " ";
    return text;
  };
  CHECK(names(Model({}).layers) == "a.0 a.1 a.2 norm b.0 out ");
  CHECK(names(Model({}, DType::bf16).layers) == "a.0 a.1 a.2 norm b.0 out ");

  Graph g;  // a value that skips a layer
  const ValueId x = layers::linear(g, layers::input_frames(g, "features", 6), "first", 6);
  const ValueId y = layers::linear(g, layers::linear(g, x, "second", 6), "third", 6);
  layers::ctc_loss(g, layers::linear(g, layers::add(g, x, y), "out", classes));
  CHECK(names(find_layers(g)) == "first second...third out ");
}

TEST_CASE("gradients that residuals hand on cross no more than one boundary", "[placement]") {
  Graph g;
  const ValueId x = layers::lstm(g, layers::input_frames(g, "features", 8), "a",
                                 {.hidden = 8, .layers = 3, .layer_norm = true, .residual = true});
  const ValueId loss = layers::ctc_loss(g, layers::linear(g, x, "out", classes));
  const std::vector<ModelLayer> layers = find_layers(g);
  CHECK(layers.size() >= 4);
  place_layers(g, layers, std::vector<int>(layers.size(), 1));
  CHECK_NOTHROW(append_staged_backward(g, loss));
}

TEST_CASE("layers are cut so that the slowest stage is fast, within the memory", "[placement]") {
  std::vector<ModelLayer> layers;
  std::vector<LayerCost> costs;
  for (double seconds : {4, 1, 1, 1, 1, 2}) {
    layers.push_back({str("l", layers.size())});
    LayerCost c;
    c.forward = seconds;
    c.weights = 100;
    c.activation_bytes = 10;
    costs.push_back(c);
  }
  CHECK(cut_by_cost(layers, costs, 1, {}) == std::vector<int>{6});
  CHECK(cut_by_cost(layers, costs, 2, {}) == std::vector<int>{2, 4});
  CHECK(cut_by_cost(layers, costs, 3, {}) == std::vector<int>{1, 3, 2});
  StageMemory memory{3 * 1630, 16, [](int) { return 3; }};
  CHECK(cut_by_cost(layers, costs, 2, memory) == std::vector<int>{3, 3});
  memory.limit -= 1;
  CHECK_THROWS_WITH(cut_by_cost(layers, costs, 2, memory), Catch::Contains("fits 0 MiB per stage"));
  CHECK_THROWS_WITH(cut_by_cost(layers, costs, 7, {}),
                    "a pipeline of 7 stages for a model of 6 layers (l0 l1 l2 l3 l4 l5): a stage "
                    "has at least one layer");
  CHECK(parse_placement("1,5", layers, 2, "x") == std::vector<int>{1, 5});
  CHECK_THROWS_WITH(parse_placement("1,4", layers, 2, "x"), Catch::Contains("places 5 layers"));
  CHECK_THROWS_WITH(parse_placement("6", layers, 2, "x"), Catch::Contains("places 1 stages"));
  CHECK_THROWS_WITH(parse_placement("6,", layers, 2, "x"), Catch::Contains("as 3,4"));
  CHECK_THROWS_WITH(parse_placement("0,6", layers, 2, "x"), Catch::Contains("as 3,4"));
  CHECK(describe_placement(layers, {1, 5}) == "l0 | l1 l2 l3 l4 l5");
}

TEST_CASE("the cost of a layer is measured layer by layer", "[placement]") {
  Graph g;
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "small", {.hidden = 4});
  x = layers::lstm(g, x, "large", {.hidden = 96});
  const ValueId loss = layers::ctc_loss(g, layers::linear(g, x, "out", classes));
  Cpu cpu;
  const BatchCapacity capacity{{400, 60, 8}, 6, 40};
  std::vector<LayerCost> costs;
  // Measured again where a busy machine has disturbed the small layer alone.
  for (int attempt = 0; attempt < 10; ++attempt) {
    costs = measure_layers(g, loss, cpu.context, capacity);
    REQUIRE(costs.size() == 3);
    if (costs[1].seconds() > costs[0].seconds()) break;
  }
  for (const LayerCost& c : costs) {
    CHECK(c.forward > 0);
    CHECK(c.weight_backward > 0);
    CHECK(c.activation_bytes > 0);
  }
  CHECK(costs[1].seconds() > costs[0].seconds());
  CHECK(costs[1].weights > 50 * costs[0].weights);
  CHECK(costs[0].message_bytes == 400 * 4 * sizeof(float));
}
