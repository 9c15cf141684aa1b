// Training in pipelines and replicas of pipelines: the losses of one rank, checkpoints that any
// split goes on from, and causes named.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/reduce/ranks.h"
#include "engine/report/jsonl.h"
#include "tests/catch.h"
#include "tests/engine/wide_ctc.h"
#include "tests/train/train_on.h"

using namespace rondo;
using Catch::Matchers::Contains;
using rondo::test::best;
using rondo::test::message_of;
using rondo::test::require_success;
using rondo::test::train_on;
using rondo::test::TrainingCorpus;

namespace {

// Six layers.
Config config(const TrainingCorpus& corpus, const std::string& name, int64_t steps = 30) {
  Config c = corpus.config(name);
  c.model.layers = 5;
  c.model.residual = true;
  c.optimizer.kind = OptimizerOptions::adamw;
  c.optimizer.learning_rate = 0.01;
  c.optimizer.clip_norm = 0.3;
  c.optimizer.ema_decay = 0.9;
  c.training.max_steps = steps;
  c.training.log_every_steps = 1;
  c.training.validate_every_steps = 0;
  return c;
}

Config pipeline(Config c, int ranks, int data = 0, int micro_batches = 4,
                ScheduleKind schedule = ScheduleKind::one_f_one_b) {
  c.parallel.pipeline = ranks;
  c.parallel.data = data;
  c.parallel.micro_batches = micro_batches;
  c.parallel.schedule = schedule;
  return c;
}

std::vector<double> losses_of(const Config& c) {
  return read_training_log(c.training.checkpoint_dir + "/log.jsonl").series.at("step.loss").y;
}

std::vector<float> newest(const Config& c) {
  return rondo::test::stored(rondo::test::newest(c.training.checkpoint_dir), "");
}
std::vector<float> newest_state(const Config& c) {
  const auto generation = rondo::test::newest(c.training.checkpoint_dir);
  std::vector<float> all;
  for (const char* slot : {"first_moment", "second_moment", "average"}) {
    const auto values = rondo::test::stored(generation, slot);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  REQUIRE_FALSE(a.empty());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = d <= worst ? worst : d;  // NaN stays
  }
  return worst;
}

// By a run's own log: it ended with the validation at which so many in a row had brought nothing
// better, and with none before; or at the limit of steps. Where all is wrong a lower loss than at
// the last progress is one, too.
void check_patience(const Config& c) {
  INFO(c.training.checkpoint_dir);
  const auto log = read_training_log(c.training.checkpoint_dir + "/log.jsonl").series;
  const Series& metric = log.at("validation.wer");
  const std::vector<double>& loss = log.at("validation.loss").y;
  REQUIRE(loss.size() == metric.y.size());
  double best = std::numeric_limits<double>::infinity(), best_loss = best, last_loss = best;
  int without_progress = 0;
  for (size_t i = 0; i < loss.size(); ++i) {
    CHECK(without_progress < c.training.patience);
    const double rate = std::min(metric.y[i], 1.0);  // more than all wrong is no worse
    const bool better = rate < best || (rate == best && loss[i] < best_loss);
    if (better) {
      best = rate;
      best_loss = loss[i];
    }
    const bool progress = better || (rate == 1 && loss[i] < last_loss);
    if (progress) last_loss = loss[i];
    without_progress = progress ? 0 : without_progress + 1;
  }
  const double end = log.at("step.loss").x.back();
  CHECK(metric.x.back() == end);
  const bool at_limit = end == static_cast<double>(c.training.max_steps);
  CHECK((at_limit || without_progress == c.training.patience));
}

}  // namespace

TEST_CASE("pipelines and their replicas have the losses of one rank", "[pipelines][slow]") {
  const rondo::test::WideCtc same_arithmetic;  // as of shards of sequences
  const TrainingCorpus corpus(60, 5);
  const Config alone = config(corpus, "alone");
  require_success(train_on(1, alone));
  // The control: one rank whose sums are in other orders.
  double losses = 0, weights = 0;
  for (int parts : {2, 3, 4, 5, 6, 7}) {
    Config c = config(corpus, "control" + std::to_string(parts));
    c.parallel.deterministic = Deterministic::world_invariant;
    c.parallel.batch_parts = parts;
    require_success(train_on(1, c));
    losses = std::max(losses, distance(losses_of(c), losses_of(alone)));
    weights = std::max(weights, distance(newest(c), newest(alone)));
  }
  REQUIRE(losses > 0);
  REQUIRE(losses < 0.05);
  // Whatever the weights: each sequence's loss is f32, so their mean may be off by a unit in the
  // last place.
  const std::vector<double> expected = losses_of(alone);
  const double rounding =
      *std::max_element(expected.begin(), expected.end()) * std::numeric_limits<float>::epsilon();
  REQUIRE(rounding < 1e-5);
  const auto check = [&](const Config& c, int ranks) {
    INFO(c.training.checkpoint_dir);
    require_success(train_on(ranks, c));
    CHECK(losses_of(c).size() == 30);
    CHECK(distance(losses_of(c), expected) <= 2 * losses + rounding);
    CHECK(distance(newest(c), newest(alone)) <= 2 * weights);
    // The best model by validation is that of the same step, and loads where any model does.
    CHECK(distance(best(c.training.checkpoint_dir), best(alone.training.checkpoint_dir)) <=
          2 * weights);
  };
  check(pipeline(config(corpus, "two"), 2), 2);
  check(pipeline(config(corpus, "two_by_two"), 2, 2, 2), 4);
  check(pipeline(config(corpus, "zero_bubble"), 3, 1, 3, ScheduleKind::zero_bubble), 3);
  Config accumulated = pipeline(config(corpus, "alone_in_a_pipeline"), 1, 1, 3);
  check(accumulated, 1);
  Config shards = pipeline(config(corpus, "shards"), 2);
  shards.parallel.sequence = 2;
  check(shards, 4);
  Config all = pipeline(config(corpus, "all"), 2, 2, 2);
  all.parallel.sequence = 2;
  all.parallel.divide_optimizer = true;
  check(all, 8);
  Config two = config(corpus, "sharded_sequences");
  two.parallel.sequence = 2;
  two.parallel.divide_optimizer = true;
  check(two, 2);
}

// One loop trains them all, so what it offers is offered to pipelines.
TEST_CASE("pipelines validate, average, reduce the rate and stop as one rank does",
          "[pipelines][slow]") {
  const TrainingCorpus corpus(60, 9);
  const auto features = [&](const std::string& name, double rate) {
    Config c = config(corpus, name, 60);
    c.training.validate_every_steps = 6;
    c.training.average_best = 2;
    c.training.patience = 2;
    c.lr.type = LearningRateType::plateau;
    c.lr.plateau_patience = 0;
    c.lr.plateau_factor = 0.9;
    c.optimizer.learning_rate = rate;
    c.training.accumulation = 2;
    c.data.test = c.data.dev;
    return c;
  };
  const Config alone = features("alone", 0.06),
               spread = pipeline(features("spread", 0.06), 2, 2, 2);
  require_success(train_on(1, alone));
  require_success(train_on(4, spread));
  const auto log = [](const Config& c) {
    return read_training_log(c.training.checkpoint_dir + "/log.jsonl").series;
  };
  const auto a = log(alone), b = log(spread);
  REQUIRE(a.at("validation.loss").y.size() >= 4);
  CHECK(a.at("validation.loss").x == b.at("validation.loss").x);
  CHECK(distance(a.at("validation.loss").y, b.at("validation.loss").y) < 1e-2);
  CHECK(a.at("step.lr").y == b.at("step.lr").y);
  CHECK(a.at("step.lr").y.front() > a.at("step.lr").y.back());
  CHECK(a.at("step.loss").y.size() == b.at("step.loss").y.size());
  CHECK(distance(best(alone.training.checkpoint_dir), best(spread.training.checkpoint_dir)) < 1e-2);
  // Where nothing is learnt, patience ends the run after the first validation and two more, however
  // sums are rounded. There is one every 6 updates, and at the end of an epoch of 9.
  for (const int ranks : {1, 4}) {
    Config still = features("still" + std::to_string(ranks), 1e-30);
    if (ranks > 1) still = pipeline(still, 2, 2, 2);
    require_success(train_on(ranks, still));
    CHECK(log(still).at("validation.loss").x == std::vector<double>{6, 9, 12});
    check_patience(still);
  }
  // At a rate that is too high it also ends runs that had learnt; when, depends on the rounding.
  for (const int ranks : {1, 4}) {
    Config hasty = features("hasty" + std::to_string(ranks), 0.6);
    if (ranks > 1) hasty = pipeline(hasty, 2, 2, 2);
    require_success(train_on(ranks, hasty));
    check_patience(hasty);
  }
  // Another run starts with its weights.
  Config next = pipeline(config(corpus, "next", 1), 3);
  next.training.init_from = spread.training.checkpoint_dir;
  next.optimizer.learning_rate = 1e-9;
  require_success(train_on(3, next));
  const std::vector<float> start = best(spread.training.checkpoint_dir);
  CHECK(distance(newest(next), start) < 1e-6);
  // A generation of stages serves as well.
  next.training.init_from = rondo::test::newest(next.training.checkpoint_dir);
  next.training.checkpoint_dir = corpus.folder.path("after_next");
  require_success(train_on(3, next));
  CHECK(distance(newest(next), start) < 1e-6);
}

TEST_CASE("a run goes on with other splits where it stood", "[slow][pipelines]") {
  const TrainingCorpus corpus(60, 5);
  const auto parts = [&](int64_t steps) { return config(corpus, "parts", steps); };
  // The same split, stopped and continued: the same bits.
  require_success(train_on(2, pipeline(config(corpus, "whole"), 2)));
  require_success(train_on(2, pipeline(config(corpus, "same", 14), 2)));
  require_success(train_on(2, pipeline(config(corpus, "same"), 2), StartFrom::checkpoint));
  const Config whole = config(corpus, "whole"), same = config(corpus, "same");
  CHECK((newest(whole) == newest(same)));
  CHECK((newest_state(whole) == newest_state(same)));
  // A measured placement stays where it was: here one that is unlike any that would be measured.
  Config odd = pipeline(config(corpus, "odd", 3), 2);
  odd.parallel.placement = "1,5";
  require_success(train_on(2, odd));
  odd.parallel.placement.clear();
  odd.training.max_steps = 4;
  require_success(train_on(2, odd, StartFrom::checkpoint));
  const auto state =
      rondo::test::bytes_of(rondo::test::newest(odd.training.checkpoint_dir) / "state.json");
  CHECK_THAT(state, Contains("\"placement\": \"1,5\""));
  // Other splits: but for the order of sums.
  require_success(train_on(2, pipeline(parts(8), 2)));
  require_success(train_on(1, parts(13), StartFrom::checkpoint));
  require_success(train_on(4, pipeline(parts(19), 2, 2, 2), StartFrom::checkpoint));
  Config shards = pipeline(parts(21), 2);
  shards.parallel.sequence = 2;
  shards.parallel.divide_optimizer = true;
  require_success(train_on(4, shards, StartFrom::checkpoint));
  require_success(train_on(3, pipeline(parts(24), 3), StartFrom::checkpoint));
  require_success(train_on(2, parts(30), StartFrom::checkpoint));
  CHECK(distance(newest(parts(30)), newest(whole)) < 5e-3);
  CHECK(distance(newest_state(parts(30)), newest_state(whole)) < 5e-2);
}

TEST_CASE("bad data stop a pipeline after the last good update", "[pipelines]") {
  TrainingCorpus corpus;
  const std::string bad = corpus.spoil_longest();
  Config c = pipeline(config(corpus, "bad", 0), 2, 2, 2);
  c.training.validate_every_steps = 0;
  c.data.dev.clear();
  const RankOutcome outcome = train_on(4, c);
  for (const auto& e : outcome.errors) CHECK_THAT(message_of(e), Contains(bad));
  CHECK_THROWS_WITH(rethrow_cause(outcome), Contains("rank ") && Contains(bad));
  const auto kept = list_checkpoints(c.training.checkpoint_dir);
  REQUIRE(kept.size() == 1);
  CHECK(kept.back().step >= 10);
}

TEST_CASE("a pipeline that cannot be is refused before training", "[pipelines]") {
  const TrainingCorpus corpus;
  const auto refusal = [&](int ranks, const Config& c) {
    const RankOutcome outcome = train_on(ranks, c);
    for (const auto& e : outcome.errors) CHECK(e);
    CHECK_FALSE(std::filesystem::exists(corpus.folder.path("refused/checkpoint-000000001")));
    std::string text = message_of(outcome.errors.at(0));
    CHECK(text.find('\n') == std::string::npos);
    return text;
  };
  const Config c = config(corpus, "refused");
  CHECK_THAT(refusal(3, pipeline(c, 2)),
             Contains("3 ranks cannot be shared out to pipelines of 2"));
  CHECK_THAT(refusal(4, pipeline(c, 2, 3)), Contains("--replicas 3 x --stages 2 is 6 ranks"));
  CHECK_THAT(refusal(1, pipeline(c, 2)), Contains("1 rank cannot be shared out"));
  CHECK_THAT(refusal(7, pipeline(c, 7, 1, 8)),
             Contains("a pipeline of 7 stages for a model of 6 layers (lstm"));
  Config shards = pipeline(c, 2);
  shards.parallel.sequence = 3;
  CHECK_THAT(refusal(4, shards), Contains("must be a multiple of --stages 2 x --shards 3"));
  Config apart = pipeline(c, 2);
  apart.parallel.sync = Sync::async;
  CHECK_THAT(refusal(2, apart), Contains("parallel.sync = \"async\" do not go together: stages"));
  Config invariant = pipeline(c, 2);
  invariant.parallel.deterministic = Deterministic::world_invariant;
  CHECK_THAT(refusal(2, invariant), Contains("ranks that hold the whole model"));
  Config placed = pipeline(c, 2);
  placed.parallel.placement = "3,4";
  CHECK_THAT(refusal(2, placed), Contains("parallel.placement = \"3,4\": places 7 layers"));
}

TEST_CASE("an update is drawn", "[slow][pipelines]") {
  const TrainingCorpus corpus;
  Config c = pipeline(config(corpus, "drawn", 3), 2, 2, 2, ScheduleKind::zero_bubble);
  c.data.dev.clear();
  const std::string file = corpus.folder.path("timeline.svg");
  require_success(train_on(4, c, StartFrom::scratch,
                           [&](int, Config&, TrainerOptions& o) { o.timeline = file; }));
  const std::string svg = rondo::test::bytes_of(file);
  CHECK_THAT(svg, Contains("rank 3") && Contains("update 3, zero_bubble, 2 x 2 ranks"));
  size_t boxes = 0;
  for (size_t at = 0; (at = svg.find("<rect", at)) != std::string::npos; ++at) ++boxes;
  CHECK(boxes >= 4 * 2 * 3);  // ranks, micro-batches, computations
  // Any run draws one, here two ranks that hold the whole model.
  Config whole = config(corpus, "whole", 3);
  require_success(train_on(2, whole, StartFrom::scratch,
                           [&](int, Config&, TrainerOptions& o) { o.timeline = file; }));
  CHECK_THAT(rondo::test::bytes_of(file), Contains("rank 1") && Contains(", 2 ranks"));
  // Shards are drawn layer by layer: who waits for whose state is seen.
  Config shards = config(corpus, "shards", 3);
  shards.parallel.sequence = 2;
  require_success(train_on(2, shards, StartFrom::scratch,
                           [&](int, Config&, TrainerOptions& o) { o.timeline = file; }));
  CHECK_THAT(rondo::test::bytes_of(file),
             Contains("2 shards of each sequence") && Contains("stage (layer).micro-batch"));
}
