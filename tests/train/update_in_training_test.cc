// What an update of a training run does, computed once more by hand: the learning rate of each
// step, the divisor, clipping, the optimisers' rules and the moving average (docs/training.md).
#include <chrono>
#include <numbers>
#include <thread>

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v * v;
  return std::sqrt(sum);
}

// torch.optim's rules, in double.
struct ByHand {
  OptimizerOptions o;
  std::vector<double> first = {}, second = {};  // momentum, or Adam's moments
  int steps = 0;

  std::vector<double> update(const Weights& w, std::vector<double> g, double lr) {
    first.resize(w.size());
    second.resize(w.size());
    ++steps;
    const double norm = norm_of(g);
    if (o.clip_norm > 0 && norm > o.clip_norm) {
      for (double& v : g) v *= o.clip_norm / norm;
    }
    std::vector<double> after;
    for (size_t i = 0; i < w.size(); ++i) {
      const double weight = w[i];
      if (o.kind == OptimizerOptions::sgd) {
        const double d = g[i] + o.weight_decay * weight;
        first[i] = o.momentum * first[i] + d;
        after.push_back(weight - lr * (o.nesterov ? d + o.momentum * first[i] : first[i]));
        continue;
      }
      const bool decoupled = o.kind == OptimizerOptions::adamw;
      const double d = g[i] + (decoupled ? 0 : o.weight_decay * weight);
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * d;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * d * d;
      const double m = first[i] / (1 - std::pow(o.beta1, steps));
      const double v = second[i] / (1 - std::pow(o.beta2, steps));
      const double kept = decoupled ? weight * (1 - lr * o.weight_decay) : weight;
      after.push_back(kept - lr * m / (std::sqrt(v) + o.epsilon));
    }
    return after;
  }
};

// Every update of a run whose batches are known, against the rules.
void check_updates(const ColumnCorpus& corpus, const Config& config, const ObservedRun& run,
                   const std::vector<std::set<size_t>>& batches, const std::vector<double>& rates) {
  REQUIRE(static_cast<size_t>(run.updates()) == batches.size());
  REQUIRE(run.steps.size() == batches.size());
  REQUIRE(rates.size() == batches.size());
  ByHand hand{config.optimizer};
  for (size_t k = 0; k < batches.size(); ++k) {
    CAPTURE(k);
    const auto batch = listed(batches[k]);
    const auto gradient = column_gradient(run.weights[k], corpus.train, batch);
    CHECK(run.steps[k].at("step") == k + 1);
    CHECK(run.steps[k].at("gradient_norm") == Approx(norm_of(gradient)).epsilon(1e-5));
    CHECK(run.steps[k].at("loss") ==
          Approx(column_loss(run.weights[k], corpus.train, batch)).epsilon(1e-5));
    CHECK(run.steps[k].at("lr") == Approx(rates[k]).epsilon(1e-12));
    check_close(run.weights[k + 1], hand.update(run.weights[k], gradient, rates[k]));
  }
}

std::vector<double> constant(const Config& config, size_t updates) {
  return std::vector<double>(updates, config.optimizer.learning_rate);
}

// The rate of update k of `last`, for each kind, after a warm-up of 4.
double rate_by_hand(const LearningRateConfig& s, double lr, int64_t k, int64_t last) {
  const auto n = static_cast<double>(k);
  if (k < 4) return lr * n / 4;
  const double x = std::min(1.0, (n - 4) / static_cast<double>(last - 4));
  switch (s.type) {
    case LearningRateType::linear:
      return lr * (1 - x + x * s.final_factor);
    case LearningRateType::cosine:
      return lr *
             (s.final_factor + (1 - s.final_factor) * 0.5 * (1 + std::cos(std::numbers::pi * x)));
    case LearningRateType::noam:
      return lr * 2 / std::sqrt(n);
    case LearningRateType::step:
      return lr * std::pow(s.step_factor, static_cast<double>((k - 4) / s.step_every));
    default:
      return lr;
  }
}

}  // namespace

TEST_CASE("each update takes the rate of its own number, warm-up and end included", "[slow]") {
  const ColumnCorpus corpus;
  const auto batches = observe(corpus, corpus.config("plain")).moved();
  const auto all = static_cast<int64_t>(batches.size());
  for (LearningRateType type :
       {LearningRateType::constant, LearningRateType::linear, LearningRateType::cosine,
        LearningRateType::noam, LearningRateType::step}) {
    // Where the fall ends: at the last update of the epochs, of max_steps, or of total_steps.
    for (int64_t limit : {int64_t{0}, all - 3, -(all - 5)}) {
      const std::string name =
          std::to_string(static_cast<int>(type)) + "limit" + std::to_string(limit);
      Config c = corpus.config(name);
      c.lr.type = type;
      c.lr.warmup_steps = 4;
      c.lr.step_every = 3;
      c.lr.step_factor = 0.75;
      c.lr.final_factor = 0.25;
      if (limit > 0) c.training.max_steps = limit;
      if (limit < 0) c.lr.total_steps = -limit;
      const ObservedRun run = observe(corpus, c);
      const int64_t updates = limit > 0 ? limit : all;
      // As many updates in each epoch as in the first: what training is expected to take.
      int64_t last = limit == 0 ? 0 : std::abs(limit);
      if (limit == 0) {
        for (const Json& s : run.steps) last += s.at("epoch") <= 1 ? c.training.epochs : 0;
      }
      std::vector<double> rates;
      for (int64_t k = 1; k <= updates; ++k) {
        rates.push_back(rate_by_hand(c.lr, c.optimizer.learning_rate, k, last));
      }
      const std::vector<std::set<size_t>> had(batches.begin(), batches.begin() + updates);
      CAPTURE(name);
      check_updates(corpus, c, run, had, rates);
    }
  }
}

TEST_CASE("sgd, adam and adamw in training are torch.optim's, with every option, and clipped",
          "[slow]") {
  const ColumnCorpus corpus;
  const auto batches = observe(corpus, corpus.config("plain")).moved();
  for (OptimizerOptions::Kind type :
       {OptimizerOptions::sgd, OptimizerOptions::adam, OptimizerOptions::adamw}) {
    for (int variation = 0; variation < 3; ++variation) {
      const std::string name = std::to_string(static_cast<int>(type)) + std::to_string(variation);
      Config c = corpus.config(name);
      c.optimizer.kind = type;
      c.optimizer.momentum = variation == 0 ? 0 : 0.6;
      c.optimizer.nesterov = variation == 2;
      c.optimizer.beta1 = 0.8;
      c.optimizer.beta2 = 0.95;
      c.optimizer.epsilon = 0.05;
      c.optimizer.weight_decay = variation == 0 ? 0 : 0.2;
      c.optimizer.clip_norm = variation == 1 ? 2.5 : 0;
      CAPTURE(name);
      const ObservedRun run = observe(corpus, c);
      check_updates(corpus, c, run, batches, constant(c, batches.size()));
      bool clipped = false;
      for (const Json& s : run.steps) clipped |= s.at("gradient_norm") > 2.5;
      CHECK(clipped);
    }
  }
}

TEST_CASE("a gradient is that of the mean over the update's utterances, then clipped") {
  const ColumnCorpus corpus;
  for (int accumulation : {1, 3}) {
    for (int ranks : {1, 2}) {
      for (bool invariant : {false, true}) {
        const std::string name = str("a", accumulation, "r", ranks, invariant ? "i" : "s");
        Config c = corpus.config(name);
        c.training.accumulation = accumulation;
        c.training.max_steps = 6;
        c.optimizer.clip_norm = 2.5;
        c.optimizer.momentum = 0.5;
        if (invariant) sum_in_parts(c, 4);
        if (!invariant && ranks > 1) c.parallel.divide_optimizer = true;
        CAPTURE(name);
        Config plain = c;
        plain.training.checkpoint_dir += "_plain";
        plain.optimizer.momentum = 0;
        const auto batches = observe(corpus, plain).moved();
        const ObservedRun run = observe(corpus, c, ranks);
        check_updates(corpus, c, run, batches, constant(c, batches.size()));
      }
    }
  }
}

TEST_CASE("accumulation changes nothing: two batches of an update are one of twice the frames") {
  // Equal lengths, in the order of the manifest: a batch of 8 is two batches of 4.
  auto utterances = ColumnCorpus::utterances(16);
  for (auto& u : utterances) u.frames = 3;
  const ColumnCorpus corpus(utterances);
  Config halves = corpus.config("halves"), whole = corpus.config("whole");
  for (Config* c : {&halves, &whole}) {
    c->training.epochs = 1;
    c->optimizer.kind = OptimizerOptions::adam;
    c->optimizer.epsilon = 0.05;
    c->optimizer.clip_norm = 1;
    c->optimizer.ema_decay = 0.5;
  }
  halves.data.batch_frames = 12;
  halves.training.accumulation = 2;
  whole.data.batch_frames = 24;
  const ObservedRun a = observe(corpus, halves), b = observe(corpus, whole);
  REQUIRE(a.updates() == 2);
  REQUIRE(b.updates() == 2);
  for (int64_t step : {1, 2}) {
    const auto& other = b.weights[static_cast<size_t>(step)];
    check_close(a.weights[static_cast<size_t>(step)], {other.begin(), other.end()});
    for (const char* slot : {"first_moment", "second_moment", "average"}) {
      const auto values = b.slot(step, slot);
      check_close(a.slot(step, slot), {values.begin(), values.end()});
    }
  }
}

TEST_CASE("ema: the average starts as the initial weights and follows each update") {
  const ColumnCorpus corpus;
  Config c = corpus.config("averaged");
  c.optimizer.ema_decay = 0.7;
  const ObservedRun run = observe(corpus, c);
  std::vector<double> average(run.weights[0].begin(), run.weights[0].end());
  for (int64_t step = 1; step <= run.updates(); ++step) {
    const Weights& w = run.weights[static_cast<size_t>(step)];
    for (size_t i = 0; i < w.size(); ++i) average[i] = 0.7 * average[i] + 0.3 * w[i];
    check_close(run.slot(step, "average"), average);
  }
  // Training itself does not see it; without validation it is the model that is kept.
  CHECK(run.weights == observe(corpus, corpus.config("plain")).weights);
  CHECK(best(run.directory) == run.slot(run.updates(), "average"));
}

TEST_CASE("the initial weights are the seed's") {
  const ColumnCorpus corpus;
  const auto first = [&](const std::string& name, uint64_t seed) {
    Config c = corpus.config(name);
    c.training.seed = seed;
    c.training.max_steps = 1;
    c.optimizer.learning_rate = 1e-30;  // which moves nothing but the bias, which begins as 0
    auto weights = observe(corpus, c).weights;
    for (Weights& w : weights) w.pop_back();
    return weights;
  };
  const auto one = first("one", 1);
  CHECK(one[1] == one[0]);
  CHECK(first("same", 1) == one);
  const auto two = first("two", 2);
  CHECK(two[1] == two[0]);
  CHECK(two[0] != one[0]);
}

TEST_CASE("a step whose gradient is not finite changes no weight and no state, and is counted",
          "[slow]") {
  auto utterances = ColumnCorpus::utterances(8);
  utterances[3].target = 3e38;  // twice that is not finite
  const ColumnCorpus corpus(utterances);
  for (int ranks : {1, 2}) {
    Config c = corpus.config("skipped" + std::to_string(ranks));
    c.data.batch_frames = 9;
    c.training.epochs = 2;
    c.optimizer.kind = OptimizerOptions::adam;
    c.optimizer.ema_decay = 0.9;
    const ObservedRun run = observe(corpus, c, ranks);
    int64_t skipped = 0;
    for (int64_t step = 1; step <= run.updates(); ++step) {
      const Json& line = run.steps.at(static_cast<size_t>(step - 1));
      const bool now = line.at("skipped") != skipped;
      skipped += now;
      CHECK(line.at("skipped") == skipped);
      CHECK((run.weights[static_cast<size_t>(step)] ==
             run.weights[static_cast<size_t>(step - 1)]) == now);
      const auto state =
          read_training_state(open_checkpoint(generation_of_step(run.directory, step)));
      CHECK(state.skipped == skipped);
      CHECK(state.skipped_in_a_row == (now ? 1 : 0));
      CHECK(state.optimizer_steps == step - skipped);
      for (const char* slot : {"first_moment", "second_moment", "average"}) {
        if (step > 1 && now) CHECK(run.slot(step, slot) == run.slot(step - 1, slot));
      }
    }
    CHECK(skipped == 2);  // once in each epoch
  }
}

TEST_CASE("a skipped update is told with its own utterances, of all its batches") {
  const ColumnCorpus good(20);
  Config c = good.config("good");
  c.training.accumulation = 2;
  c.data.batch_frames = 40;
  c.training.epochs = 2;
  const ObservedRun plain = observe(good, c);
  // One that is in an update of the second epoch which is not its first.
  size_t most = 0;
  for (size_t bad = 0; bad < good.size(); ++bad) {
    auto utterances = good.train;
    utterances[bad].target = 3e38;
    const ColumnCorpus corpus(utterances);
    Config spoilt = corpus.config("bad");
    spoilt.training.accumulation = 2;
    spoilt.data.batch_frames = 40;
    spoilt.training.epochs = 2;
    spoilt.training.log_every_steps = 1000;  // skipped ones have a line nevertheless
    if (bad % 5 != 3) continue;
    require_success(train_on(1, spoilt));
    std::vector<std::string> told, wanted;
    for (const Json& line : log_events(spoilt.training.checkpoint_dir, "message")) {
      const std::string text = line.at("text");
      if (text.find("gradient is not finite") != std::string::npos) told.push_back(text);
    }
    for (int64_t step = 1; step <= plain.updates(); ++step) {
      const std::set<size_t> batch = plain.moved(step);
      if (!batch.contains(bad)) continue;
      REQUIRE(told.size() > wanted.size());
      const std::string& text = told[wanted.size()];
      wanted.push_back(str("warning: step ", step, ": the gradient is not finite; skipped (",
                           wanted.size() + 1, " so far); its utterances: "));
      CHECK_THAT(text, Catch::Matchers::StartsWith(wanted.back()));
      size_t named = 0;
      for (size_t i = 0; i < corpus.size(); ++i) {
        const std::string name = corpus.folder.path("train.jsonl:") + std::to_string(i + 1);
        const bool is_named = (text + ",").find(name + ",") != std::string::npos ||
                              text.find(name + " and") != std::string::npos;
        if (is_named) CHECK(batch.contains(i));
        named += is_named;
      }
      CHECK(named == std::min<size_t>(batch.size(), 8));
      const std::string rest = str(" and ", batch.size() - named, " more");
      CHECK((text.find(" more") != std::string::npos) == (batch.size() > 8));
      if (batch.size() > 8) CHECK_THAT(text, Catch::Matchers::EndsWith(rest));
      most = std::max(most, batch.size());
    }
    CHECK(told.size() == wanted.size());
    CHECK(wanted.size() == 2);
    CHECK(log_events(spoilt.training.checkpoint_dir, "step").size() == 2);
  }
  CHECK(most > 8);
}

TEST_CASE("max_seconds counts what a run took before it was stopped") {
  const ColumnCorpus corpus;
  Config c = corpus.config("run");
  c.training.epochs = 100;
  c.training.max_seconds = 0.05;
  // Each update takes as long as the run may.
  struct Slow final : TrainingObserver {
    void stepped(const Step&) override {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
      while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
  } slow;
  TrainerOptions o;
  o.observer = &slow;
  const TrainingSummary first = train(c, o);
  CHECK(first.steps >= 1);
  CHECK(first.steps <= 2);
  CHECK_FALSE(first.stopped_by_signal);
  const double slept = 0.06 * static_cast<double>(first.steps);
  CHECK(first.seconds >= slept);
  o.start = StartFrom::checkpoint;
  const TrainingSummary second = train(c, o);
  CHECK(second.steps == first.steps);
  CHECK(second.seconds >= slept);
}

TEST_CASE("non_finite_limit counts skipped updates in a row; non_finite = \"stop\" takes none") {
  auto utterances = ColumnCorpus::utterances(6);
  for (auto& u : utterances) u.target = 3e38;
  const ColumnCorpus all_bad(utterances);
  utterances = ColumnCorpus::utterances(6);
  utterances[2].target = 3e38;
  const ColumnCorpus one_bad(utterances);
  const auto updates = [](const Config& c) {
    const auto outcome = train_on(1, c);
    const std::string message = message_of(outcome.errors.at(0));
    if (!message.empty()) CHECK_THAT(message, Contains("training stopped at step"));
    return static_cast<int64_t>(log_events(c.training.checkpoint_dir, "step").size());
  };
  Config c = all_bad.config("three");
  c.data.batch_frames = 8;
  c.training.non_finite_limit = 3;
  CHECK(updates(c) == 3);
  c = all_bad.config("one");
  c.data.batch_frames = 8;
  c.training.non_finite = OnNonFinite::stop;
  CHECK(updates(c) == 1);
  c = one_bad.config("never");  // a good update between two bad ones
  c.data.batch_frames = 8;
  c.training.epochs = 5;
  c.training.non_finite_limit = 2;
  CHECK(updates(c) > 5);
  CHECK(log_events(c.training.checkpoint_dir, "end").size() == 1);
}
