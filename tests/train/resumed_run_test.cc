// What a run that goes on, or begins with another's weights, takes over, and what not
// (docs/training.md, Continuing).

#include "tests/train/observed_run.h"

#include "tests/catch.h"

using namespace rondo;
using namespace rondo::test;

namespace {

// Everything that has a state: moments, average, plateau, patience, skipped updates, the best so
// far.
Config eventful(const ColumnCorpus& corpus, const std::string& name) {
  Config c = corpus.with_dev(name);
  c.training.epochs = 12;
  c.training.ema = 0.6;
  c.training.clip = 20;
  c.training.patience = 50;
  c.optimizer.type = OptimizerType::adam;
  c.optimizer.lr = 1;
  c.schedule.type = ScheduleType::plateau;
  c.schedule.warmup_steps = 7;
  c.schedule.plateau_patience = 1;
  return c;
}

TrainingState state_of(const ObservedRun& run, int64_t step) {
  return read_training_state(open_checkpoint(generation_of_step(run.directory, step)));
}

std::vector<Json> validations_of(const ObservedRun& run) {
  auto all = log_events(run.directory, "validation");
  for (Json& v : all) v.erase("seconds");
  return all;
}

}  // namespace

TEST_CASE("a resumed run has the state, the rates and the validations of one that went on") {
  auto utterances = ColumnCorpus::utterances(10);
  utterances[4].target = 3e38;  // its updates are skipped
  const ColumnCorpus corpus(utterances);
  utterances[4].target = 1;
  corpus.write("dev", utterances);
  const ObservedRun whole = observe(corpus, eventful(corpus, "whole"));
  const int64_t last = whole.updates();
  const TrainingState want = state_of(whole, last);
  REQUIRE(want.plateau.factor < 0.6);
  REQUIRE(want.skipped == 12);
  REQUIRE(want.best_metric < std::numeric_limits<double>::infinity());
  const auto validations = validations_of(whole);
  for (size_t epoch : {0u, 4u, 7u, 10u}) {
    Config c = eventful(corpus, "cut" + std::to_string(epoch));
    c.training.max_steps = validations.at(epoch).at("step");
    observe(corpus, c);
    c.training.max_steps = 0;
    const ObservedRun run = observe(corpus, c, 1, StartFrom::checkpoint);
    CHECK(run.weights == whole.weights);
    CHECK(values_of(run.steps, "lr") == values_of(whole.steps, "lr"));
    CHECK(values_of(run.steps, "skipped") == values_of(whole.steps, "skipped"));
    CHECK(validations_of(run) == validations);
    CHECK(best(run.directory) == best(whole.directory));
    for (const char* slot : {"first_moment", "second_moment", "average"}) {
      CHECK(run.slot(last, slot) == whole.slot(last, slot));
    }
    TrainingState got = state_of(run, last);
    got.seconds = want.seconds;
    CHECK(got.to_json() == want.to_json());
    CHECK(log_events(run.directory, "resume").size() == 1);
  }
}

TEST_CASE("the state of a run comes back from its file, field by field") {
  TrainingState s;
  s.step = 11;
  s.epoch = 3;
  s.step_in_epoch = 2;
  s.optimizer_steps = 9;
  s.frames = 1234567890123;
  s.seconds = 45.5;
  s.best_metric = 0.25;
  s.best_loss = 1.75;
  s.validations_without_progress = 4;
  s.skipped_in_a_row = 1;
  s.skipped = 6;
  s.validation_pending = true;
  s.plateau = {.factor = 0.125, .best = 0.3, .bad_validations = 2};
  s.placement = "3,4";
  s.data_hash = 0xfedcba9876543210;
  const TrainingState t = TrainingState::from_json(s.to_json(), "state.json");
  CHECK(t.step == 11);
  CHECK(t.epoch == 3);
  CHECK(t.step_in_epoch == 2);
  CHECK(t.optimizer_steps == 9);
  CHECK(t.frames == 1234567890123);
  CHECK(t.seconds == 45.5);
  CHECK(t.best_metric == 0.25);
  CHECK(t.best_loss == 1.75);
  CHECK(t.validations_without_progress == 4);
  CHECK(t.skipped_in_a_row == 1);
  CHECK(t.skipped == 6);
  CHECK(t.validation_pending);
  CHECK(t.plateau.factor == 0.125);
  CHECK(t.plateau.best == 0.3);
  CHECK(t.plateau.bad_validations == 2);
  CHECK(t.placement == "3,4");
  CHECK(t.data_hash == 0xfedcba9876543210);
  const TrainingState fresh = TrainingState::from_json(TrainingState().to_json(), "state.json");
  CHECK(fresh.best_metric == std::numeric_limits<double>::infinity());
  CHECK(fresh.best_loss == std::numeric_limits<double>::infinity());
  CHECK(fresh.plateau.best == std::numeric_limits<double>::infinity());
}

TEST_CASE("init_from takes the best weights of another run, and nothing else of it") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("first");
  c.data.sorta_grad = false;
  c.training.epochs = 6;
  c.training.ema = 0.5;
  c.optimizer.lr = 1.2;
  c.optimizer.momentum = 0.1;
  const ObservedRun first = observe(corpus, c);
  const Weights from = best(first.directory);
  REQUIRE(from != first.weights.back());
  const auto plain = observe(corpus, corpus.config("plain")).moved();
  for (int ranks : {1, 2}) {
    Config next = corpus.with_dev("next" + std::to_string(ranks));
    next.training.init_from = first.directory;
    next.training.ema = 0.5;
    next.optimizer.momentum = 0.9;
    next.schedule.warmup_steps = 4;
    const ObservedRun run = observe(corpus, next, ranks);
    // Momentum begins with 0, the warm-up and the epochs with the first step, the average with the
    // weights.
    const auto gradient = column_gradient(from, corpus.train, listed(plain.at(0)));
    std::vector<double> wanted, average;
    for (size_t i = 0; i < from.size(); ++i) {
      wanted.push_back(from[i] - next.optimizer.lr / 4 * gradient[i]);
      average.push_back((static_cast<double>(from[i]) + run.weights[1][i]) / 2);
    }
    check_close(run.weights[1], wanted);
    check_close(run.slot(1, "average"), average);
    check_close(run.slot(1, "momentum"), gradient);
    CHECK(run.steps.at(0).at("step") == 1);
    CHECK(run.steps.at(0).at("lr") == Approx(next.optimizer.lr / 4));
    CHECK(run.updates() == static_cast<int64_t>(plain.size()));
    CHECK(log_events(run.directory, "validation").at(0).at("best") == true);
    CHECK(log_events(run.directory, "start").size() == 1);
  }
}
