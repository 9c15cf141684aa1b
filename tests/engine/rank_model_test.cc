// Pipelines and replicas of pipelines (threads as ranks) train like one rank.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "comm/in_process/run_ranks.h"
#include "engine/rank_model.h"
#include "tests/catch.h"
#include "tests/engine/gradient_check.h"
#include "tests/engine/wide_ctc.h"
#include "tests/rank_check.h"

using namespace rondo;
using rondo::test::RandomBatch;

namespace {

constexpr int32_t classes = 5;
constexpr int steps = 12, parts = 4;  // micro-batches of an update, over all replicas

Outputs model(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::lstm(g, x, "a", {.hidden = 12, .layers = 3, .bidirectional = true, .dropout = 0.1});
  x = layers::lstm(g, x, "b", {.hidden = 16, .layers = 2});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

// Layers that need frames of their neighbours.
Outputs convolutional(Graph& g) {
  ValueId x = layers::input_frames(g, "features", 6);
  x = layers::gelu(g, layers::conv(g, x, "front", {.channels = 8, .kernel = 3}));
  x = layers::lstm(g, x, "a", {.hidden = 12, .bidirectional = true});
  x = layers::conv(g, x, "between", {.channels = 10, .kernel = 4});
  x = layers::lstm(g, x, "b", {.hidden = 16});
  const ValueId logits = layers::linear(g, x, "out", classes);
  return {layers::ctc_loss(g, logits), logits};
}

SessionOptions options(double clip, OptimizerOptions::Kind kind = OptimizerOptions::adamw) {
  SessionOptions o;
  o.threads = 1;
  o.seed = 4;
  o.optimizer.kind = kind;
  o.optimizer.learning_rate = kind == OptimizerOptions::sgd ? 0.3 : 0.01;
  o.optimizer.clip_norm = clip;
  o.optimizer.ema_decay = 0.9;
  return o;
}

// The micro-batches of every update: ragged, one of them empty now and then.
struct Data {
  std::vector<RandomBatch> batches;
  std::vector<BatchView> views;
  BatchCapacity capacity;
  ModelFunction trained;

  explicit Data(ModelFunction of = model) : trained(std::move(of)) {
    Graph g;
    trained(g);
    batches.reserve(steps * parts);
    for (int i = 0; i < steps * parts; ++i) {
      std::vector<int32_t> lengths = {14 - i % 5, 9, 4 + i % 3};
      if (i % 7 == 2) lengths.clear();
      batches.emplace_back(lengths, classes, static_cast<unsigned>(i));
      views.push_back(batches.back().view(g, classes, static_cast<unsigned>(i)));
      views.back().step_seed = static_cast<uint64_t>(i);
      capacity = BatchCapacity::merge(capacity, views.back().extent());
    }
  }
  std::vector<BatchView> of(int step, int first, int count) const {
    const auto from = views.begin() + step * parts + first;
    return {from, from + count};
  }
};

struct Curve {
  std::vector<double> losses, norms;
  std::vector<float> weights, average, prediction;
};

// `order`: of the micro-batches of an update.
Curve train_alone(const Data& data, const SessionOptions& o, const std::vector<size_t>& order = {},
                  int updates = steps) {
  Session session(data.trained, o);
  Curve c;
  for (int step = 0; step < updates; ++step) {
    const std::vector<BatchView> views = data.of(step, 0, parts);
    for (size_t i = 0; i < views.size(); ++i) {
      session.accumulate(views[order.empty() ? i : order[i]]);
    }
    const StepResult& r = session.update();
    c.losses.push_back(r.mean_loss());
    c.norms.push_back(r.gradient_norm);
  }
  const TensorView w = session.parameters().weights();
  c.weights.assign(w.as<float>(), w.as<float>() + w.numel());
  const TensorView a = session.optimizer().state().back().view;
  c.average.assign(a.as<float>(), a.as<float>() + a.numel());
  c.prediction = session.evaluate_and_predict(data.views[0]);
  return c;
}

struct Setting {
  int data, pipeline;
  ScheduleKind schedule;
  const char* placement = "";
  int sequence = 1;
  bool divide_optimizer = false;
  int ranks() const { return data * pipeline * sequence; }
};

// The curve must be the same on all ranks.
// The weights come tensor by tensor, in whatever order and pieces; a writer that fails keeps nobody
// waiting.
void check_stream(RankModel& trainer, const std::vector<float>& weights) {
  std::vector<float> streamed(weights.size());
  trainer.stream_weights([&](std::span<const TensorToWrite> tensors) {
    for (size_t i = tensors.size(); i-- > 0;) {
      const auto bytes = std::as_writable_bytes(
          std::span(streamed).subspan(static_cast<size_t>(trainer.entries()[i].offset),
                                      static_cast<size_t>(trainer.entries()[i].numel())));
      tensors[i].fill(0, bytes.first(4));
      tensors[i].fill(4, bytes.subspan(4));
    }
  });
  RANK_CHECK(streamed == weights);
  bool failed = false;
  try {
    trainer.stream_weights([](std::span<const TensorToWrite> tensors) {
      std::byte first[4];
      tensors.back().fill(0, first);
      throw InputError("the disk is full");
    });
  } catch (const InputError&) {
    failed = true;
  }
  RANK_CHECK(failed == !weights.empty());
}

Curve train_in_pipeline(const Data& data, const SessionOptions& o, const Setting& setting,
                        int updates = steps) {
  Curve result;
  std::mutex mutex;
  int ranks_done = 0;
  run_ranks(setting.ranks(), [&](int rank, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks world(*group, std::chrono::seconds(20));
    RankGrid grid(transport, {setting.data, setting.pipeline, setting.sequence},
                  std::chrono::seconds(20));
    SplitSettings p;
    p.schedule = setting.schedule;
    p.micro_batches = parts / setting.data;
    p.placement = setting.placement;
    p.bucket_bytes = 2000;
    p.divide_optimizer = setting.divide_optimizer;
    RankModel trainer(data.trained, o, p, world, grid, data.capacity);
    Curve c;
    for (int step = 0; step < updates; ++step) {
      trainer.accumulate(data.of(step, grid.replica() * p.micro_batches, p.micro_batches), true);
      const StepResult& r = trainer.update();
      c.losses.push_back(r.mean_loss());
      c.norms.push_back(r.gradient_norm);
    }
    c.prediction = trainer.evaluate_and_predict(data.views[0]);
    c.weights = trainer.gather("");
    c.average = trainer.gather("average");
    RANK_CHECK(c.weights.empty() == (rank != 0));
    // Into other hands, and back.
    trainer.set("", [](const auto&, std::span<float> into) { std::ranges::fill(into, 0.5f); });
    RANK_CHECK(trainer.parameters().weight(trainer.parameters().entries()[0].name).as<float>()[0] ==
               0.5f);
    trainer.set("", [&](const auto& e, std::span<float> into) {
      std::copy_n(c.weights.begin() + e.offset, into.size(), into.begin());
    });
    RANK_CHECK(trainer.gather("") == c.weights);
    check_stream(trainer, c.weights);
    const std::lock_guard lock(mutex);
    ++ranks_done;
    if (rank == 0 || result.losses.empty()) {
      const bool same = result.losses.empty() || (result.losses == c.losses);
      CHECK(same);
      result = c;
    } else {
      CHECK(result.losses == c.losses);
      CHECK(result.norms == c.norms);
      CHECK(result.prediction == c.prediction);
    }
  });
  CHECK(ranks_done == setting.ranks());
  return result;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / std::abs(b[i]);
    worst = d <= worst ? worst : d;  // NaN stays
  }
  return worst;
}
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = d <= worst ? worst : d;
  }
  return worst;
}

// What the order of summation does to one rank is what it may do to several: the most of some
// orders of micro-batches, and of frames within products, which parts of sequences change too. One
// order alone may by chance change next to nothing.
struct Control {
  double losses = 0, norms = 0, weights = 0;

  Control(const Data& data, const SessionOptions& o, const Curve& want) {
    std::vector<size_t> order(parts);
    std::iota(order.begin(), order.end(), size_t{0});
    for (int run = 0; run < 5; ++run) {
      for (int i = 0; i < 4; ++i) std::next_permutation(order.begin(), order.end());
      add(train_alone(data, o, order), want);
    }
    for (const char* variant : {"generic", "avx2"}) {
      prefer_variant("gemm", variant);
      const Curve other = train_alone(data, o);
      prefer_variant("gemm", "");
      add(other, want);
    }
  }

 private:
  void add(const Curve& other, const Curve& want) {
    losses = std::max(losses, distance(other.losses, want.losses));
    norms = std::max(norms, distance(other.norms, want.norms));
    weights = std::max(weights, distance(other.weights, want.weights));
  }
};

}  // namespace

TEST_CASE("a pipeline without clipping trains to the bits of one rank", "[pipeline]") {
  const Data data;
  const SessionOptions o = options(0, OptimizerOptions::sgd);
  const Curve want = train_alone(data, o);
  const Curve got = train_in_pipeline(data, o, {1, 3, ScheduleKind::zero_bubble, "2,2,2"});
  CHECK((got.weights == want.weights));
  CHECK((got.average == want.average));
  CHECK((got.losses == want.losses));
  CHECK((got.prediction == want.prediction));
  CHECK(distance(want.weights, train_alone(data, options(0, OptimizerOptions::adamw)).weights) >
        1e-2);
}

TEST_CASE("pipelines and their replicas give the losses of one rank", "[slow][pipeline]") {
  const Data data;
  const SessionOptions o = options(0.5);
  const Curve want = train_alone(data, o);
  const Control control(data, o, want);
  REQUIRE(control.losses > 0);
  REQUIRE(control.losses < 1e-3);
  REQUIRE(control.weights < 1e-2);
  const Setting setting =
      GENERATE(Setting{1, 2, ScheduleKind::one_f_one_b}, Setting{1, 1, ScheduleKind::one_f_one_b},
               Setting{2, 2, ScheduleKind::one_f_one_b, "3,3"},
               Setting{2, 2, ScheduleKind::zero_bubble}, Setting{2, 1, ScheduleKind::one_f_one_b});
  INFO(setting.data << " x " << setting.pipeline << " " << name_of(setting.schedule));
  const Curve got = train_in_pipeline(data, o, setting);
  CHECK(distance(got.losses, want.losses) <= 4 * control.losses);
  CHECK(distance(got.norms, want.norms) <= 4 * control.norms);
  CHECK(distance(got.weights, want.weights) <= 4 * control.weights);
  CHECK(distance(got.average, want.average) <= 4 * control.weights);
}

TEST_CASE("stages whose ranks share each sequence give the losses of one rank",
          "[slow][pipeline]") {
  const rondo::test::WideCtc same_arithmetic;
  const Data data;
  const SessionOptions o = options(0.5);
  const Curve want = train_alone(data, o);
  const Control control(data, o, want);
  const Setting setting = GENERATE(Setting{1, 2, ScheduleKind::one_f_one_b, "", 2},
                                   Setting{2, 2, ScheduleKind::one_f_one_b, "3,3", 2, true},
                                   Setting{1, 2, ScheduleKind::zero_bubble, "", 3},
                                   Setting{1, 1, ScheduleKind::one_f_one_b, "", 4});
  INFO(setting.data << " x " << setting.pipeline << " x " << setting.sequence << " "
                    << name_of(setting.schedule));
  const Curve got = train_in_pipeline(data, o, setting);
  CHECK(distance(got.losses, want.losses) <= 4 * control.losses);
  CHECK(distance(got.norms, want.norms) <= 4 * control.norms);
  CHECK(distance(got.weights, want.weights) <= 4 * control.weights);
  CHECK(distance(got.average, want.average) <= 4 * control.weights);
}

TEST_CASE("stages and shards of a model with convolutions give the losses of one rank",
          "[slow][pipeline]") {
  const rondo::test::WideCtc same_arithmetic;
  const Data data(convolutional);
  const SessionOptions o = options(0.5);
  const Curve want = train_alone(data, o);
  const Control control(data, o, want);
  const Setting setting = GENERATE(Setting{1, 2, ScheduleKind::one_f_one_b, "1,4", 2},
                                   Setting{1, 2, ScheduleKind::zero_bubble, "2,3", 3},
                                   Setting{1, 2, ScheduleKind::one_f_one_b, "3,2"},
                                   Setting{1, 1, ScheduleKind::one_f_one_b, "", 4});
  INFO(setting.data << " x " << setting.pipeline << " x " << setting.sequence << " "
                    << name_of(setting.schedule));
  const Curve got = train_in_pipeline(data, o, setting);
  CHECK(distance(got.losses, want.losses) <= 4 * control.losses);
  CHECK(distance(got.norms, want.norms) <= 4 * control.norms);
  CHECK(distance(got.weights, want.weights) <= 4 * control.weights);
  CHECK(distance(got.average, want.average) <= 4 * control.weights);
}

TEST_CASE("pipelines on simulated GPUs give the losses of one", "[slow][pipeline]") {
  const Data data;
  SessionOptions o = options(0.5);
  o.device = DeviceKind::sim;
  const int updates = 2;
  const Curve want = train_alone(data, o, {}, updates);
  const Curve control = train_alone(data, o, {3, 2, 1, 0}, updates);
  const Curve got = train_in_pipeline(data, o, {1, 2, ScheduleKind::one_f_one_b, "3,3"}, updates);
  CHECK(distance(got.losses, want.losses) <= 4 * distance(control.losses, want.losses));
  CHECK(distance(got.weights, want.weights) <= 4 * distance(control.weights, want.weights));
}

TEST_CASE("an optimiser divided over a stage's ranks does not change a bit", "[slow][pipeline]") {
  const Data data;
  const SessionOptions o = options(0.5);
  for (const int sequence : {1, 2}) {
    Setting setting{2, 2, ScheduleKind::one_f_one_b, "2,4", sequence};
    const Curve whole = train_in_pipeline(data, o, setting);
    setting.divide_optimizer = true;
    const Curve divided = train_in_pipeline(data, o, setting);
    CHECK((whole.weights == divided.weights));
    CHECK((whole.average == divided.average));
    CHECK((whole.losses == divided.losses));
  }
}

TEST_CASE("where the model is cut does not change a bit", "[pipeline]") {
  const Data data;
  const SessionOptions o = options(0.5);
  const Curve a = train_in_pipeline(data, o, {1, 2, ScheduleKind::one_f_one_b, "1,5"});
  const Curve b = train_in_pipeline(data, o, {1, 2, ScheduleKind::one_f_one_b, "4,2"});
  const Curve c = train_in_pipeline(data, o, {1, 4, ScheduleKind::zero_bubble, "1,1,1,3"});
  CHECK((a.weights == b.weights));
  CHECK((a.weights == c.weights));
}

TEST_CASE("a model that pools is cut in time or into stages, not both", "[pipeline]") {
  const Data data;
  const auto classifier = [](Graph& g) {
    ValueId x = layers::input_frames(g, "features", 6);
    x = layers::mean_pool(g, layers::lstm(g, x, "a", {.hidden = 8, .layers = 2}));
    const ValueId logits = layers::linear(g, x, "out", classes);
    return Outputs{layers::cross_entropy(g, logits, "class"), logits};
  };
  const RankOutcome outcome = run_ranks_and_collect(4, [&](int, Transport& transport) {
    const auto group = make_ring_group(transport);
    const Ranks world(*group, std::chrono::seconds(20));
    RankGrid grid(transport, {1, 2, 2}, std::chrono::seconds(20));
    SplitSettings p;
    p.placement = "1,2";
    RankModel(classifier, options(0), p, world, grid, data.capacity);
  });
  CHECK_THROWS_WITH(rethrow_cause(outcome),
                    Catch::Contains("cannot be cut both in time (parallel.sequence) and into "
                                    "stages (parallel.pipeline)"));
}

TEST_CASE("what does not fit the ranks is said before training", "[pipeline]") {
  CHECK(split_world(6, 3, 0).data == 2);
  CHECK(split_world(4, 2, 2).pipeline == 2);
  CHECK_THROWS_WITH(split_world(5, 2, 0),
                    "5 ranks cannot be shared out to pipelines of 2 ranks: the "
                    "number of ranks must be a multiple of --stages");
  CHECK_THROWS_WITH(split_world(4, 2, 3),
                    "--replicas 3 x --stages 2 is 6 ranks, not the 4 there are");
  CHECK(split_world(12, 2, 0, 3).data == 2);
  CHECK_THROWS_WITH(split_world(8, 2, 0, 3),
                    "8 ranks cannot be shared out to pipelines of 6 ranks: the number of ranks "
                    "must be a multiple of --stages 2 x --shards 3");
  CHECK_THROWS_WITH(split_world(8, 2, 3, 2),
                    "--replicas 3 x --stages 2 x --shards 2 is 12 ranks, not the 8 there are");

  const Data data;
  const auto complaint = [&](int ranks, SplitSettings p, bool unlike = false) {
    std::string text;
    std::mutex mutex;
    const RankOutcome outcome = run_ranks_and_collect(ranks, [&](int rank, Transport& transport) {
      const auto group = make_ring_group(transport);
      const Ranks world(*group, std::chrono::seconds(20));
      RankGrid grid(transport, {1, ranks}, std::chrono::seconds(20));
      const auto other = [](Graph& g) {
        ValueId x = layers::input_frames(g, "features", 6);
        x = layers::lstm(g, x, "a", {.hidden = 11, .layers = 5});
        x = layers::linear(g, x, "out", classes);
        return Outputs{layers::ctc_loss(g, x), x};
      };
      const ModelFunction function = unlike && rank == 1 ? ModelFunction(other) : model;
      try {
        RankModel(function, options(0), p, world, grid, data.capacity);
      } catch (const InputError& e) {
        const std::lock_guard lock(mutex);
        text = e.what();
        throw;
      }
    });
    CHECK(outcome.first_failed >= 0);
    return text;
  };
  SplitSettings p;
  p.micro_batches = 8;
  CHECK(complaint(7, p) ==
        "a pipeline of 7 stages for a model of 6 layers (a.0 a.1 a.2 b.0 b.1 "
        "out): a stage has at least one layer");
  p.stage_memory = 20000;
  CHECK_THAT(complaint(2, p), Catch::StartsWith("no cut of the model's 6 layers into 2 stages"));
  p.stage_memory = 0;
  p.placement = "1,1";
  CHECK_THAT(complaint(2, p), Catch::Contains("places 2 layers, the model has 6"));
  p.placement = "3,3";
  CHECK(complaint(2, p, true) == "its model, or where it is cut, is not that of rank 0");
}
