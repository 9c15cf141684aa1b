// What is validated, kept, averaged and tested: the best model and not the last one, by the losses
// of the right data (docs/training.md).

#include "tests/train/observed_run.h"

#include "tests/catch.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

std::vector<size_t> everything(const ColumnCorpus& corpus) {
  std::vector<size_t> all(corpus.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

// Of the corpus's dev and test data, by their definition in ColumnCorpus.
double loss_on(const ColumnCorpus& corpus, double shift, const Weights& w) {
  std::vector<ColumnUtterance> utterances = corpus.train;
  for (ColumnUtterance& u : utterances) u.target += shift;
  return column_loss(w, utterances, everything(corpus));
}
double dev_loss(const ColumnCorpus& corpus, const Weights& w) { return loss_on(corpus, 0.25, w); }
double test_loss(const ColumnCorpus& corpus, const Weights& w) { return loss_on(corpus, -1.5, w); }

// With so high a rate that the loss rises and falls: the best is neither the first nor the last.
Config restless(const ColumnCorpus& corpus, const std::string& name) {
  Config c = corpus.with_dev(name);
  c.data.test = corpus.folder.path("test.jsonl");
  c.data.sorta_grad = false;
  c.training.epochs = 12;
  c.optimizer.learning_rate = 0.5;
  return c;
}

// The step with the lowest dev loss, by hand, among those that were validated.
size_t best_step(const ColumnCorpus& corpus, const ObservedRun& run) {
  size_t best = 0;
  for (const Json& v : log_events(run.directory, "validation")) {
    const auto step = v.at("step").get<size_t>();
    if (best == 0 ||
        dev_loss(corpus, run.weights.at(step)) < dev_loss(corpus, run.weights.at(best))) {
      best = step;
    }
  }
  return best;
}

std::vector<int64_t> steps_of(const std::vector<Json>& events) {
  std::vector<int64_t> steps;
  for (const Json& e : events) steps.push_back(e.at("step"));
  return steps;
}

std::vector<int64_t> kept_steps(const Config& c) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(c.training.checkpoint_dir)) {
    steps.push_back(info.step);
  }
  return steps;
}

}  // namespace

TEST_CASE(
    "a validation is of the dev data, with the weights of its step, and leaves training alone",
    "[slow]") {
  const ColumnCorpus corpus;
  const Config c = restless(corpus, "validated");
  for (int ranks : {1, 2}) {
    Config mine = c;
    mine.training.checkpoint_dir += std::to_string(ranks);
    const ObservedRun run = observe(corpus, mine, ranks);
    const auto validations = log_events(run.directory, "validation");
    CHECK(validations.size() == 12);
    double lowest = std::numeric_limits<double>::infinity();
    for (const Json& v : validations) {
      const double loss = dev_loss(corpus, run.weights.at(v.at("step").get<size_t>()));
      CHECK(v.at("loss") == Approx(loss).epsilon(1e-5));
      CHECK(v.at("best") == (loss < lowest));
      lowest = std::min(lowest, loss);
    }
    if (ranks > 1) continue;
    Config without = c;
    without.training.checkpoint_dir += "_without";
    without.data.dev.clear();
    without.data.test.clear();
    CHECK(observe(corpus, without).weights == run.weights);
  }
}

TEST_CASE("an utterance whose loss is not finite counts in no validation's mean") {
  const ColumnCorpus corpus;
  std::vector<ColumnUtterance> dev = corpus.train;
  dev[4].target = 3e38;  // whose square is infinite
  corpus.write("dev", dev);
  std::vector<size_t> others = everything(corpus);
  std::erase(others, size_t{4});
  for (int ranks : {1, 2}) {
    const Config c = corpus.with_dev("run" + std::to_string(ranks));
    const ObservedRun run = observe(corpus, c, ranks);
    for (const Json& v : log_events(run.directory, "validation")) {
      const Weights& w = run.weights.at(v.at("step").get<size_t>());
      CHECK(v.at("loss") == Approx(column_loss(w, dev, others)).epsilon(1e-5));
    }
  }
}

TEST_CASE("model.safetensors is the best model on the dev data, and the test scores that one",
          "[slow]") {
  const ColumnCorpus corpus;
  for (int ranks : {1, 2}) {
    const Config c = restless(corpus, "best" + std::to_string(ranks));
    const ObservedRun run = observe(corpus, c, ranks);
    const size_t best_one = best_step(corpus, run);
    REQUIRE(best_one != 0);
    REQUIRE(static_cast<int64_t>(best_one) < run.updates());
    REQUIRE(static_cast<int64_t>(best_one) !=
            log_events(run.directory, "validation")[0].at("step"));
    CHECK(best(run.directory) == run.weights[best_one]);
    const auto tests = log_events(run.directory, "test");
    REQUIRE(tests.size() == 1);
    const double loss = test_loss(corpus, run.weights[best_one]);
    CHECK(tests[0].at("loss") == Approx(loss).epsilon(1e-5));
    CHECK(tests[0].at("metric") == Approx(loss).epsilon(1e-5));
    CHECK(std::abs(loss / test_loss(corpus, run.weights.back()) - 1) > 0.01);
    CHECK(std::abs(loss / dev_loss(corpus, run.weights[best_one]) - 1) > 0.01);
  }
}

TEST_CASE("without dev data the last weights are the model, and the test scores them", "[slow]") {
  const ColumnCorpus corpus;
  Config c = restless(corpus, "last");
  c.data.dev.clear();
  const ObservedRun run = observe(corpus, c);
  CHECK(best(run.directory) == run.weights.back());
  CHECK(log_events(run.directory, "test").at(0).at("loss") ==
        Approx(test_loss(corpus, run.weights.back())).epsilon(1e-5));
}

TEST_CASE("average_best: the mean of so many best checkpoints, kept where it is no worse",
          "[slow]") {
  const ColumnCorpus corpus;
  for (int count : {3, 5}) {
    Config c = restless(corpus, "average" + std::to_string(count));
    c.training.average_best = count;
    c.optimizer.learning_rate = 0.6;  // around the minimum, not into it
    const ObservedRun run = observe(corpus, c);
    std::vector<std::pair<double, size_t>> by_loss;
    for (const Json& v : log_events(run.directory, "validation")) {
      by_loss.emplace_back(v.at("loss"), v.at("step"));
    }
    std::sort(by_loss.begin(), by_loss.end());
    std::vector<double> mean(run.weights[0].size());
    for (int n = 0; n < count; ++n) {
      const Weights& w = run.weights.at(by_loss.at(static_cast<size_t>(n)).second);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(w[i]) / count;
    }
    const Weights averaged(mean.begin(), mean.end());
    const double loss = dev_loss(corpus, averaged);
    CAPTURE(count, loss, by_loss[0].first);
    // Around a minimum the mean is better than each: it is what is kept, and tested.
    REQUIRE(loss < by_loss[0].first);
    check_close(best(run.directory), mean);
    CHECK(log_events(run.directory, "test").at(0).at("loss") ==
          Approx(test_loss(corpus, averaged)).epsilon(1e-5));
  }
  // On a way straight downhill the last is better than any mean.
  Config c = corpus.with_dev("downhill");
  c.training.average_best = 3;
  c.optimizer.learning_rate = 0.05;
  const ObservedRun run = observe(corpus, c);
  CHECK(best(run.directory) == run.weights.back());
}

TEST_CASE("ema: validations, the best model and their average are of the averaged weights",
          "[slow]") {
  const ColumnCorpus corpus;
  Config c = restless(corpus, "averaged");
  c.optimizer.ema_decay = 0.8;
  for (int average_best : {0, 3}) {
    c.training.average_best = average_best;
    c.training.checkpoint_dir += std::to_string(average_best);
    const ObservedRun run = observe(corpus, c);
    std::vector<std::pair<double, size_t>> by_loss;
    for (const Json& v : log_events(run.directory, "validation")) {
      const auto step = v.at("step").get<size_t>();
      const double loss = dev_loss(corpus, run.slot(static_cast<int64_t>(step), "average"));
      CHECK(v.at("loss") == Approx(loss).epsilon(1e-5));
      by_loss.emplace_back(loss, step);
    }
    std::sort(by_loss.begin(), by_loss.end());
    const size_t count = average_best ? 3 : 1;
    std::vector<double> mean(run.weights[0].size());
    for (size_t n = 0; n < count; ++n) {
      const Weights a = run.slot(static_cast<int64_t>(by_loss[n].second), "average");
      for (size_t i = 0; i < a.size(); ++i) mean[i] += a[i] / static_cast<double>(count);
    }
    const double loss = dev_loss(corpus, Weights(mean.begin(), mean.end()));
    if (count > 1 && loss > by_loss[0].first) {
      CHECK(best(run.directory) == run.slot(static_cast<int64_t>(by_loss[0].second), "average"));
    } else {
      check_close(best(run.directory), mean);
    }
  }
}

TEST_CASE("validations come after each epoch, and at every multiple of validate_every_steps",
          "[slow]") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("epochs");
  const ObservedRun run = observe(corpus, c);
  std::vector<int64_t> ends;
  for (const Json& s : run.steps) {
    const double epoch = s.at("epoch");
    if (epoch == std::floor(epoch)) ends.push_back(s.at("step"));
  }
  CHECK(ends.size() == 3);
  CHECK(steps_of(log_events(run.directory, "validation")) == ends);
  c = corpus.with_dev("steps");
  c.training.validate_every_steps = 4;
  std::set<int64_t> wanted(ends.begin(), ends.end());
  for (int64_t step = 4; step <= run.updates(); step += 4) wanted.insert(step);
  const auto found = steps_of(log_events(observe(corpus, c).directory, "validation"));
  CHECK(found == std::vector<int64_t>(wanted.begin(), wanted.end()));
  c = corpus.with_dev("cut");  // the end of training is validated too
  c.training.max_steps = ends[0] + 1;
  CHECK(steps_of(log_events(observe(corpus, c).directory, "validation")) ==
        std::vector<int64_t>{ends[0], ends[0] + 1});
}

TEST_CASE("patience: training stops after so many validations without a better one", "[slow]") {
  const ColumnCorpus corpus;
  for (int patience : {1, 2, 4}) {
    Config c = restless(corpus, "patience" + std::to_string(patience));
    c.training.epochs = 60;
    c.training.patience = patience;
    const ObservedRun run = observe(corpus, c);
    int without = 0;
    const auto validations = log_events(run.directory, "validation");
    for (size_t i = 0; i < validations.size(); ++i) {
      CHECK(without < patience);  // it would have stopped before
      without = validations[i].at("best") ? 0 : without + 1;
    }
    CHECK(without == patience);
    CHECK(validations.back().at("step") == run.updates());
    // The best one is still what is kept.
    CHECK(best(run.directory) == run.weights[best_step(corpus, run)]);
  }
}

TEST_CASE("plateau: the rate is cut after so many validations without enough gain, and stays cut",
          "[slow]") {
  const ColumnCorpus corpus;
  Config c = restless(corpus, "plateau");
  c.training.epochs = 20;
  c.lr.type = LearningRateType::plateau;
  c.lr.plateau_patience = 1;
  c.lr.plateau_factor = 0.7;
  c.lr.plateau_threshold = 0.05;
  const ObservedRun run = observe(corpus, c);
  const auto validations = log_events(run.directory, "validation");
  double factor = 1, lowest = std::numeric_limits<double>::infinity();
  int without = 0;
  size_t next = 0;
  for (const Json& s : run.steps) {
    CHECK(s.at("lr") == Approx(c.optimizer.learning_rate * factor));
    if (next == validations.size() || s.at("step") != validations[next].at("step")) continue;
    const double loss = validations[next++].at("loss");
    if (loss < (std::isinf(lowest) ? lowest : 0.95 * lowest)) {
      lowest = loss;
      without = 0;
    } else if (++without > 1) {
      factor *= 0.7;
      without = 0;
    }
  }
  CHECK(next == validations.size());
  CHECK(factor < 0.5);  // it was cut more than once
}

TEST_CASE("keep_last newest and keep_best best checkpoints stay, saved when they are due",
          "[slow]") {
  const ColumnCorpus corpus;
  Config c = restless(corpus, "kept");
  c.training.keep_last = 2;
  c.training.keep_best = 3;
  const auto runs = [&](const Config& config) { require_success(train_on(1, config)); };
  runs(c);
  std::vector<std::pair<double, int64_t>> by_loss;
  for (const Json& v : log_events(c.training.checkpoint_dir, "validation")) {
    by_loss.emplace_back(v.at("loss"), v.at("step"));
  }
  std::sort(by_loss.begin(), by_loss.end());
  const int64_t last = log_events(c.training.checkpoint_dir, "end").at(0).at("step");
  std::set<int64_t> wanted = {last - 1, last};
  for (size_t n = 0; n < 3; ++n) wanted.insert(by_loss[n].second);
  CHECK(kept_steps(c) == std::vector<int64_t>(wanted.begin(), wanted.end()));

  c = corpus.config("every_four");
  c.training.checkpoint_every_steps = 4;
  runs(c);
  std::set<int64_t> due;
  for (const Json& s : log_events(c.training.checkpoint_dir, "step")) {
    const int64_t step = s.at("step");
    if (step % 4 == 0 || std::fmod(s.at("epoch").get<double>(), 1) == 0) due.insert(step);
  }
  CHECK(kept_steps(c) == std::vector<int64_t>(due.begin(), due.end()));
  c.training.checkpoint_dir += "_not_by_steps";
  c.training.checkpoint_every_steps = 0;
  runs(c);
  std::erase_if(due, [&](int64_t step) {
    const auto steps = log_events(c.training.checkpoint_dir, "step");
    return std::fmod(steps.at(static_cast<size_t>(step - 1)).at("epoch").get<double>(), 1) != 0;
  });
  CHECK(kept_steps(c) == std::vector<int64_t>(due.begin(), due.end()));
}
