// What a run that goes on, or begins with another's weights, takes over, and what not
// (docs/training.md, Continuing).

#include "engine/train/state/run_learning_rate.h"
#include "tests/catch.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// Everything that has a state: moments, average, plateau, patience, skipped updates, the best so
// far.
Config eventful(const ColumnCorpus& corpus, const std::string& name) {
  Config c = corpus.with_dev(name);
  c.training.epochs = 12;
  c.optimizer.ema_decay = 0.6;
  c.optimizer.clip_norm = 20;
  c.training.patience = 50;
  c.optimizer.kind = OptimizerOptions::adam;
  c.optimizer.learning_rate = 1;
  c.lr.type = LearningRateType::plateau;
  c.lr.warmup_steps = 7;
  c.lr.plateau_patience = 1;
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

TEST_CASE("a run is to have the updates of its epochs, and max_steps where that is less") {
  struct Case {
    int epochs;
    int64_t per_epoch, max_steps, expected;
  };
  const Case cases[] = {{3, 5, 0, 15},  {3, 5, 1, 1},   {3, 5, 7, 7},     {3, 5, 14, 14},
                        {3, 5, 15, 15}, {3, 5, 16, 15}, {3, 5, 1000, 15}, {1, 1, 2, 1}};
  for (const Case& of : cases) {
    CAPTURE(of.epochs, of.per_epoch, of.max_steps);
    Config c;
    c.training.epochs = of.epochs;
    c.training.max_steps = of.max_steps;
    c.optimizer.learning_rate = 0.5;
    c.lr.type = LearningRateType::linear;
    c.lr.warmup_steps = 0;
    RunLearningRate rates(c);
    TrainingState state;
    rates.begin(state, of.per_epoch);
    CHECK(rates.expected_steps() == of.expected);
    CHECK(state.expected_steps == of.expected);
    // Where the fall of the rate ends, too: the run does not stop half-way down.
    const auto rate = [&](int64_t step) {
      state.step = step - 1;
      return rates.rate(state);
    };
    CHECK(rate(of.expected) == learning_rate(c.lr, 0.5, of.expected, of.expected, {}));
    if (of.expected > 1) CHECK(rate(of.expected) < rate(of.expected - 1));
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
  s.chosen_by = Metric::cer;
  s.chosen_by_since = 5;
  s.best_metric = 0.25;
  s.best_loss = 1.75;
  s.best_rates = {.cer = 0.25, .wer = 0.5, .error = 0.75};
  s.progress_loss = 1.5;
  s.validations_without_progress = 4;
  s.skipped_in_a_row = 1;
  s.skipped = 6;
  s.validation_pending = true;
  s.plateau = {.factor = 0.125, .best = 0.3, .best_loss = 1.25, .bad_validations = 2};
  s.expected_steps = 90;
  s.fall_end = 80;
  s.placement = "3,4";
  s.data_hash = 0xfedcba9876543210;
  const TrainingState t = TrainingState::from_json(s.to_json(), "state.json");
  CHECK(t.step == 11);
  CHECK(t.epoch == 3);
  CHECK(t.step_in_epoch == 2);
  CHECK(t.optimizer_steps == 9);
  CHECK(t.frames == 1234567890123);
  CHECK(t.seconds == 45.5);
  CHECK(t.chosen_by == Metric::cer);
  CHECK(t.chosen_by_since == 5);
  CHECK(t.best_metric == 0.25);
  CHECK(t.best_loss == 1.75);
  CHECK(t.best_rates.cer == 0.25);
  CHECK(t.best_rates.wer == 0.5);
  CHECK(t.best_rates.error == 0.75);
  CHECK(t.progress_loss == 1.5);
  CHECK(t.validations_without_progress == 4);
  CHECK(t.skipped_in_a_row == 1);
  CHECK(t.skipped == 6);
  CHECK(t.validation_pending);
  CHECK(t.plateau.factor == 0.125);
  CHECK(t.plateau.best == 0.3);
  CHECK(t.plateau.best_loss == 1.25);
  CHECK(t.plateau.bad_validations == 2);
  CHECK(t.expected_steps == 90);
  CHECK(t.fall_end == 80);
  CHECK(t.placement == "3,4");
  CHECK(t.data_hash == 0xfedcba9876543210);
  const TrainingState fresh = TrainingState::from_json(TrainingState().to_json(), "state.json");
  CHECK(fresh.best_metric == std::numeric_limits<double>::infinity());
  CHECK(fresh.best_loss == std::numeric_limits<double>::infinity());
  CHECK(fresh.plateau.best == std::numeric_limits<double>::infinity());
}

namespace {

struct Warnings final : TrainingObserver {
  std::string all;
  void message(const std::string& text) override {
    if (text.find("learning rate") != std::string::npos) all += text + "\n";
  }
};

// Has seen so many updates.
struct StopsAfter final : TrainingObserver {
  explicit StopsAfter(int64_t last) : last_(last) {}
  bool over = false;
  void stepped(const Step& step) override { over = step.step >= last_; }

 private:
  const int64_t last_;
};

std::string rate_warnings(const Config& c) {
  Warnings warnings;
  TrainerOptions o;
  o.start = StartFrom::checkpoint;
  o.observer = &warnings;
  train(c, o);
  return warnings.all;
}

}  // namespace

TEST_CASE("a run that is stopped within a validation goes on as if it had not been", "[slow]") {
  const ColumnCorpus corpus;
  for (const int ranks : {1, 2}) {
    const auto config = [&](const std::string& name) {
      Config c = corpus.with_dev(str(name, ranks));
      c.optimizer.ema_decay = 0.6;
      c.optimizer.momentum = 0.5;
      c.optimizer.learning_rate = 0.3;
      return c;
    };
    const ObservedRun whole = observe(corpus, config("whole"), ranks);
    const auto validations = validations_of(whole);
    REQUIRE(validations.size() == 3);
    // The first, one between, and the one that the training ends with.
    for (const Json& validation : validations) {
      const auto step = validation.at("step").get<int64_t>();
      CAPTURE(ranks, step);
      const Config c = config(str("cut", step, "-"));
      // What is asked next, once the update has been seen, is the validation.
      StopsAfter stopping(step);
      require_success(
          train_on(ranks, c, StartFrom::scratch, [&](int rank, Config&, TrainerOptions& o) {
            if (rank > 0) return;
            o.observer = &stopping;
            o.stop = [&] { return stopping.over; };
          }));
      const auto saved = newest(c.training.checkpoint_dir);
      const TrainingState state = read_training_state(open_checkpoint(saved));
      CHECK((state.step == step && state.validation_pending));
      CHECK(stored(saved, "") == whole.weights.at(static_cast<size_t>(step)));
      CHECK(stored(saved, "average") == whole.slot(step, "average"));
      const ObservedRun run = observe(corpus, c, ranks, StartFrom::checkpoint);
      CHECK(run.weights == whole.weights);
      CHECK(run.slot(whole.updates(), "average") == whole.slot(whole.updates(), "average"));
      CHECK(validations_of(run) == validations);
      CHECK(best(run.directory) == best(whole.directory));
    }
  }
}

TEST_CASE("a checkpoint without what the optimizer keeps is refused by the name of that") {
  const ColumnCorpus corpus;
  for (const bool divided : {false, true}) {
    CAPTURE(divided);
    const int ranks = divided ? 2 : 1;
    Config c = corpus.config(divided ? "divided" : "whole");
    c.optimizer.momentum = 0.5;
    c.parallel.divide_optimizer = divided;
    require_success(train_on(ranks, c));
    c.training.epochs = 5;
    c.optimizer.kind = OptimizerOptions::adam;
    const RankOutcome outcome = train_on(ranks, c, StartFrom::checkpoint);
    CHECK_THAT(message_of(outcome.errors.at(0)),
               Contains("optimizer.safetensors") && Contains("has no tensor 'first_moment'"));
    c.optimizer.kind = OptimizerOptions::sgd;
    require_success(train_on(ranks, c, StartFrom::checkpoint));
  }
}

TEST_CASE("more epochs: the jump of the learning rate is named, and can be chosen away", "[slow]") {
  const ColumnCorpus corpus;
  Config c = corpus.config("first");
  c.data.sorta_grad = false;
  c.training.epochs = 10;
  c.lr.type = LearningRateType::cosine;
  c.optimizer.learning_rate = 0.1;
  const ObservedRun first = observe(corpus, c);
  const int64_t last = first.updates();
  const auto copy = [&](const char* name) {
    Config next = c;
    next.training.checkpoint_dir = corpus.folder.path(name);
    std::filesystem::copy(c.training.checkpoint_dir, next.training.checkpoint_dir,
                          std::filesystem::copy_options::recursive);
    return next;
  };
  const auto rates_of = [](const Config& config) {
    return values_of(log_events(config.training.checkpoint_dir, "step"), "lr");
  };
  const auto at = [](const std::vector<double>& rates, int64_t step) {
    return rates.at(static_cast<size_t>(step - 1));
  };
  CHECK(at(rates_of(c), last) < 0.002);

  Config stretched = copy("stretched");
  CHECK(rate_warnings(stretched) == "");  // nothing is left to do, nothing changes
  stretched.training.epochs = 20;
  const std::string told = rate_warnings(stretched);
  CAPTURE(told);
  const auto number = [](double rate) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", rate);
    return std::string(text);
  };
  const double jump = at(rates_of(stretched), last + 1);
  CHECK(jump == Approx(0.05).epsilon(0.1));
  CHECK_THAT(told, Contains("from " + number(at(rates_of(c), last)) + " to " + number(jump)) &&
                       Contains("lr.on_resume=keep leaves the end where it was"));
  CHECK(rate_warnings(stretched) == "");  // it has been told

  Config kept = copy("kept");
  kept.training.epochs = 20;
  kept.lr.on_resume = OnResume::keep;
  CHECK(rate_warnings(kept) == "");
  for (int64_t step = last + 1; step <= last + 10; ++step) {
    CHECK(at(rates_of(kept), step) == Approx(0.001).epsilon(0.1));
  }
  // Cut in the middle of what was added, with the settings as they are now: the same.
  Config cut = copy("cut");
  cut.training.epochs = 20;
  cut.lr.on_resume = OnResume::keep;
  StopsAfter stopping(last + 4);
  TrainerOptions o;
  o.start = StartFrom::checkpoint;
  o.observer = &stopping;
  o.stop = [&] { return stopping.over; };
  train(cut, o);
  CHECK(rate_warnings(cut) == "");
  CHECK(rates_of(cut) == rates_of(kept));
  CHECK(weights_of(cut.training.checkpoint_dir) == weights_of(kept.training.checkpoint_dir));

  // Other settings that change the rate.
  for (const auto& change : std::vector<std::function<void(Config&)>>{
           [](Config& config) { config.optimizer.learning_rate = 0.02; },
           [](Config& config) { config.lr.type = LearningRateType::constant; },
           [](Config& config) { config.lr.warmup_steps = 1000; }}) {
    Config other = copy("other");
    other.training.epochs = 20;
    other.lr.on_resume = OnResume::keep;
    change(other);
    const std::string warned = rate_warnings(other);
    CHECK_THAT(warned, Contains(" to " + number(at(rates_of(other), last + 1)) +
                                " with the next update, by the settings that differ"));
    std::filesystem::remove_all(other.training.checkpoint_dir);
  }
}

TEST_CASE("init_from takes the best weights of another run, and nothing else of it", "[slow]") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("first");
  c.data.sorta_grad = false;
  c.training.epochs = 6;
  c.optimizer.ema_decay = 0.5;
  c.optimizer.learning_rate = 1.2;
  c.optimizer.momentum = 0.1;
  const ObservedRun first = observe(corpus, c);
  const Weights from = best(first.directory);
  REQUIRE(from != first.weights.back());
  const auto plain = observe(corpus, corpus.config("plain")).moved();
  for (int ranks : {1, 2}) {
    Config next = corpus.with_dev("next" + std::to_string(ranks));
    next.training.init_from = first.directory;
    next.optimizer.ema_decay = 0.5;
    next.optimizer.momentum = 0.9;
    next.lr.warmup_steps = 4;
    const ObservedRun run = observe(corpus, next, ranks);
    // Momentum begins with 0, the warm-up and the epochs with the first step, the average with the
    // weights.
    const auto gradient = column_gradient(from, corpus.train, listed(plain.at(0)));
    std::vector<double> wanted, average;
    for (size_t i = 0; i < from.size(); ++i) {
      wanted.push_back(from[i] - next.optimizer.learning_rate / 4 * gradient[i]);
      average.push_back((static_cast<double>(from[i]) + run.weights[1][i]) / 2);
    }
    check_close(run.weights[1], wanted);
    check_close(run.slot(1, "average"), average);
    check_close(run.slot(1, "momentum"), gradient);
    CHECK(run.steps.at(0).at("step") == 1);
    CHECK(run.steps.at(0).at("lr") == Approx(next.optimizer.learning_rate / 4));
    CHECK(run.updates() == static_cast<int64_t>(plain.size()));
    CHECK(log_events(run.directory, "validation").at(0).at("best") == true);
    CHECK(log_events(run.directory, "start").size() == 1);
  }
}
