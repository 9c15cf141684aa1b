// What chooses among the models of a run (training.metric), and what follows from it: the best
// model, patience, averages, and a run that goes on (docs/training.md, The best model).

#include <tuple>

#include "tests/catch.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// Other texts, in every so many of a manifest's lines: each letter becomes a string.
void rewrite(const TrainingCorpus& corpus, const char* part,
             const std::map<char, std::string>& letters, int every = 1) {
  std::istringstream lines(bytes_of(corpus.folder.path(part)));
  std::string manifest;
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    Json j = Json::parse(line);
    if (number % every == 0) {
      std::string text;
      for (const char letter : j.at("text").get<std::string>()) text += letters.at(letter);
      j["text"] = text;
    }
    manifest += j.dump() + "\n";
  }
  corpus.folder.write(part, manifest);
}

void rewrite(const TrainingCorpus& corpus, const std::map<char, std::string>& letters) {
  for (const char* part : {"train.jsonl", "dev.jsonl"}) rewrite(corpus, part, letters);
}

// All generations are kept, and a validation follows every few updates.
Config validated(const TrainingCorpus& corpus, const std::string& name, Metric metric) {
  Config c = corpus.config(name);
  c.training.metric = metric;
  c.training.validate_every_steps = 4;
  c.training.max_steps = 160;
  c.training.keep_last = 1000;
  c.optimizer.kind = OptimizerOptions::adam;
  c.optimizer.learning_rate = 0.05;
  return c;
}

// The step of the best validation, and whether each was the best so far, by hand.
int64_t best_by(const std::vector<Json>& validations, const std::string& field,
                std::vector<bool>* flags = nullptr) {
  std::pair<double, double> best(1e9, 1e9);
  int64_t step = 0;
  for (const Json& v : validations) {
    const double value = v.at(field);
    const std::pair<double, double> found(std::min(value, 1.0), v.at("loss"));
    if (flags) flags->push_back(found < best);
    if (found < best) step = v.at("step");
    best = std::min(best, found);
  }
  return step;
}

TrainingState state_of(const std::string& directory) {
  return read_training_state(open_checkpoint(newest(directory)));
}

std::string start_metric(const std::string& directory) {
  return log_events(directory, "start").at(0).at("chosen_by");
}

// The newest generation once more, its state changed.
void change_state(const std::string& directory, const std::function<void(Json&)>& change) {
  const Checkpoint before = open_checkpoint(newest(directory));
  CheckpointStore store(directory, {.keep_last = 1000});
  CheckpointWriter writer = store.begin();
  for (const std::string& file : before.files()) {
    std::string content = before.text(file);
    if (file == "state.json") {
      Json state = Json::parse(content);
      change(state);
      content = state.dump();
    }
    writer.add_text(file, content);
  }
  writer.commit(before.info().step);
}

struct Messages final : TrainingObserver {
  std::string all;
  void message(const std::string& text) override { all += text + "\n"; }
};

std::string messages_of(const Config& c, StartFrom start = StartFrom::checkpoint) {
  Messages messages;
  TrainerOptions o;
  o.observer = &messages;
  o.start = start;
  train(c, o);
  return messages.all;
}

}  // namespace

TEST_CASE("scores: less is better, rates of 100 % and more are one, and the loss decides") {
  CHECK(Score(0.2, 9).better_than({0.3, 1}));
  CHECK_FALSE(Score(0.3, 1).better_than({0.2, 9}));
  CHECK(Score(0.2, 1).better_than({0.2, 2}));
  CHECK_FALSE(Score(0.2, 2).better_than({0.2, 2}));
  CHECK(Score(1.4, 3).better_than({1, 4}));
  CHECK_FALSE(Score(1, 4).better_than({1.4, 3}));
  CHECK(Score(0.99, 60).better_than({1, 3}));
  CHECK(Score(3, 3).better_than({4, 4}));  // losses
  CHECK(Score(-2, -2).better_than({-1, -1}));
  CHECK(Score(1, 5).better_than({}));
}

TEST_CASE("patience: a falling loss is progress while the metric stands at its worst") {
  const double inf = std::numeric_limits<double>::infinity();
  struct Case {
    double metric, loss;
    bool best;
    int64_t without;
  };
  const Case cases[] = {
      {0.97, 60, true, 0},   // noise that meets a letter by chance
      {1, 30, false, 0},     // the model writes nothing, and learns
      {1, 20, false, 0},     //
      {1.2, 19, false, 0},   //
      {1, 19.5, false, 1},   // the loss has risen
      {1, inf, false, 2},    //
      {0.98, 10, false, 3},  // neither at its worst nor better
      {0.97, 9, true, 0},    // as good as the best, by a lower loss
      {0.5, 12, true, 0},    //
      {0.5, 12, false, 1},   //
      {0.5, 11, true, 0},    //
  };
  TrainingState s;
  for (const Case& c : cases) {
    CAPTURE(c.metric, c.loss);
    CHECK(s.validated({c.metric, c.loss}, {}) == c.best);
    CHECK(s.validations_without_progress == c.without);
  }
  TrainingState nothing;  // not one utterance has a loss: still there is a model
  CHECK(nothing.validated({1, inf}, {}));
  CHECK_FALSE(nothing.validated({1, inf}, {}));
}

TEST_CASE("another metric begins with what the best model has by it, and counts anew") {
  TrainingState before;
  before.step = 40;
  before.chosen_by = Metric::wer;
  before.best_metric = 0.5;
  before.best_loss = 3;
  before.best_rates = {.cer = 0.2, .wer = 0.5};
  before.progress_loss = 2.5;
  before.validations_without_progress = 3;
  before.plateau = {.factor = 0.25, .best = 0.4, .best_loss = 2, .bad_validations = 2};
  for (const auto& [metric, known] : std::map<Metric, double>{
           {Metric::cer, 0.2}, {Metric::wer, 0.5}, {Metric::loss, 3}, {Metric::error, INFINITY}}) {
    TrainingState s = before;
    CHECK(s.choose_by(metric) == std::isfinite(known));
    CHECK(s.chosen_by == metric);
    CHECK(s.chosen_by_since == 40);
    CHECK(s.best_metric == known);
    CHECK(s.best_loss == 3);
    CHECK(s.progress_loss == 3);
    CHECK(s.validations_without_progress == 0);
    CHECK(s.plateau.best == known);
    CHECK(s.plateau.best_loss == 3);
    CHECK(s.plateau.bad_validations == 0);
    CHECK(s.plateau.factor == 0.25);
  }
  // The rates are those of the best validation.
  TrainingState validated;
  validated.validated({0.5, 3}, {.cer = 0.2, .wer = 0.5});
  validated.validated({0.6, 2}, {.cer = 0.1, .wer = 0.6});
  CHECK(validated.choose_by(Metric::cer));
  CHECK(validated.best_metric == 0.2);
}

TEST_CASE("the best model is that of the lowest CER, WER or loss, as asked for", "[slow]") {
  const TrainingCorpus corpus(24, 12);
  // Where every third reference is wrong, the loss rises as soon as the model is sure of what it
  // writes, and the rates go on falling.
  rewrite(corpus, "dev.jsonl", {{'a', "b"}, {'b', "c"}, {'c', "a"}}, 3);
  std::set<int64_t> chosen;
  for (const auto& [metric, field] : std::map<Metric, std::string>{
           {Metric::cer, "cer"}, {Metric::wer, "wer"}, {Metric::loss, "loss"}}) {
    CAPTURE(field);
    Config c = validated(corpus, field, metric);
    c.data.test = c.data.dev;
    Messages messages;
    TrainerOptions o;
    o.version = "of the test";
    o.observer = &messages;
    const TrainingSummary summary = train(c, o);
    const std::string& run = c.training.checkpoint_dir;
    const auto validations = log_events(run, "validation");
    std::vector<bool> flags;
    const int64_t step = best_by(validations, field, &flags);
    for (size_t i = 0; i < flags.size(); ++i) {
      CHECK(validations[i].at("best") == flags[i]);
      CHECK(validations[i].at("chosen_by") == field);
    }
    CHECK(best(run) == stored(generation_of_step(run, step), ""));
    chosen.insert(step);
    // Whatever tells of the choice names it.
    CHECK(summary.chosen_by == metric);
    CHECK(start_metric(run) == field);
    CHECK_THAT(messages.all, Contains("(best so far, by " + title_of(metric) + ")"));
    const SafetensorsFile file(run + "/model.safetensors");
    const auto origin = ModelDescription::from_metadata(file.metadata(), run).origin;
    CHECK(origin.chosen_by == metric);
    CHECK(origin.metric == summary.best_metric);
    CHECK(origin.updates == step);
    const auto tests = log_events(run, "test");
    REQUIRE(tests.size() == 1);
    CHECK(tests[0].at("metric") == tests[0].at(field));
    CHECK(tests[0].at("metric").get<double>() == Approx(summary.best_metric));
  }
  CHECK(chosen.size() > 1);  // or the choice would not show
}

TEST_CASE("replicas, pipelines, shards and ranks apart choose by the metric too", "[slow]") {
  const TrainingCorpus corpus(24, 12);
  const std::map<std::string, std::function<void(Config&)>> ways = {
      {"replicas", [](Config&) {}},
      {"pipeline", [](Config& c) { c.parallel.pipeline = 2; }},
      {"shards", [](Config& c) { c.parallel.sequence = 2; }},
      {"divided", [](Config& c) { c.parallel.divide_optimizer = true; }},
      {"apart", [](Config& c) { c.parallel.sync = Sync::async; }}};
  for (const auto& [name, set] : ways) {
    CAPTURE(name);
    Config c = validated(corpus, name, Metric::cer);
    c.training.max_steps = 48;
    c.training.average_best = 2;
    set(c);
    require_success(train_on(2, c, StartFrom::scratch,
                             [](int, Config&, TrainerOptions& o) { o.version = "of the test"; }));
    const std::string& run = c.training.checkpoint_dir;
    const auto validations = log_events(run, "validation");
    REQUIRE(validations.size() > 4);
    std::vector<bool> flags;
    best_by(validations, "cer", &flags);
    for (size_t i = 0; i < flags.size(); ++i) {
      CHECK(validations[i].at("best") == flags[i]);
      CHECK(validations[i].at("chosen_by") == "cer");
    }
    CHECK(state_of(run).chosen_by == Metric::cer);
    const SafetensorsFile file(run + "/model.safetensors");
    const auto origin = ModelDescription::from_metadata(file.metadata(), run).origin;
    double lowest = 2;
    for (const Json& v : validations) lowest = std::min(lowest, v.at("cer").get<double>());
    CHECK(origin.metric <= lowest);
  }
}

TEST_CASE("plateau: the rate stays while nothing is written yet and the loss falls", "[slow]") {
  const TrainingCorpus corpus(24, 12);
  Config c = validated(corpus, "run", Metric::wer);
  c.lr.type = LearningRateType::plateau;
  c.lr.plateau_patience = 0;
  train(c, {});
  const std::string& run = c.training.checkpoint_dir;
  std::map<int64_t, Json> validations;
  for (const Json& v : log_events(run, "validation")) validations[v.at("step")] = v;
  double factor = 1, best = 1e9, loss_then = 1e9;
  int at_worst = 0, cuts = 0;
  std::map<int64_t, double> rates;
  for (const auto& [step, v] : validations) {
    const double wer = v.at("wer"), loss = v.at("loss");
    const bool by_loss = wer >= 1 || wer == best;
    if (wer < best || (by_loss && loss < loss_then)) {
      at_worst += wer >= 1 && best <= 1 && loss < loss_then;
      best = std::min(best, wer);
      loss_then = loss;
    } else {
      factor *= c.lr.plateau_factor;
      ++cuts;
    }
    rates[step] = factor;
  }
  CHECK(at_worst > 1);  // each of these was a cut once
  CHECK(cuts > 0);
  for (const Json& s : log_events(run, "step")) {
    const auto after = rates.lower_bound(s.at("step").get<int64_t>());  // validated at or after it
    const double wanted = after == rates.begin() ? 1 : std::prev(after)->second;
    CHECK(s.at("lr") == Approx(c.optimizer.learning_rate * wanted));
  }
}

TEST_CASE("auto counts characters where spaces divide no words, and words elsewhere") {
  const auto by = [](const std::map<char, std::string>& letters) {
    const TrainingCorpus corpus(6, 6);
    rewrite(corpus, letters);
    Config c = corpus.config("run");
    c.model.subsample = 1;
    c.data.text_too_long = OnBadData::skip;
    c.training.max_steps = 1;
    const std::string told = messages_of(c, StartFrom::scratch);
    const std::string metric = start_metric(c.training.checkpoint_dir);
    CHECK((told.find("is chosen by CER") != std::string::npos) == (metric == "cer"));
    CHECK(state_of(c.training.checkpoint_dir).chosen_by == *metric_named(metric));
    return metric;
  };
  CHECK(by({{'a', "a"}, {'b', "b"}, {'c', "c"}}) == "wer");
  CHECK(by({{'a', "上"}, {'b', "床"}, {'c', "月"}}) == "cer");
  CHECK(by({{'a', "上 "}, {'b', "床 "}, {'c', "ก"}}) == "cer");
}

TEST_CASE("classes and targets are chosen by what is usual there, or by the loss") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("run");
  for (const Metric metric : {Metric::cer, Metric::wer}) {
    c.training.metric = metric;
    CHECK_THROWS_WITH(train(c, {}), Contains("training.metric is \"") &&
                                        Contains("task \"regress\" writes none") &&
                                        Contains("expected \"auto\" (the loss)"));
    Config classes = c;
    classes.task = Task::classify;
    CHECK_THROWS_WITH(train(classes, {}), Contains("task \"classify\" writes none"));
  }
  for (const Metric metric : {Metric::automatic, Metric::loss}) {
    c.training.metric = metric;
    c.training.checkpoint_dir = corpus.folder.path("by" + std::to_string(static_cast<int>(metric)));
    train(c, {});
    CHECK(start_metric(c.training.checkpoint_dir) == "loss");
  }
  c.data.dev.clear();
  CHECK_THROWS_WITH(train(c, {}),
                    "training.metric needs validations, and data.dev is empty; expected a manifest "
                    "there, or training.metric=auto");
}

TEST_CASE("a run from before there was a choice goes on by WER, and may be given another",
          "[slow]") {
  const TrainingCorpus corpus(24, 12);
  rewrite(corpus, {{'a', "上"}, {'b', "床"}, {'c', "月"}});  // auto would take CER now
  Config c = validated(corpus, "run", Metric::wer);
  c.training.max_steps = 40;
  train(c, {});
  const std::string& run = c.training.checkpoint_dir;
  change_state(run, [](Json& state) {
    for (const char* key :
         {"chosen_by", "chosen_by_since", "best_cer", "best_wer", "best_error", "progress_loss",
          "plateau_best_loss", "expected_steps", "schedule_end"}) {
      REQUIRE(state.erase(key) == 1);
    }
  });
  c.training.metric = Metric::automatic;
  c.training.max_steps = 48;
  CHECK_THAT(messages_of(c), !Contains("chosen by"));
  CHECK(state_of(run).chosen_by == Metric::wer);
  auto validations = log_events(run, "validation");
  std::vector<bool> flags;
  best_by(validations, "wer", &flags);
  for (size_t i = 0; i < flags.size(); ++i) CHECK(validations[i].at("best") == flags[i]);

  // Another metric: what the best model so far has by it is known here.
  c.training.metric = Metric::loss;
  c.training.max_steps = 80;
  CHECK_THAT(
      messages_of(c),
      Contains(
          "from here on loss chooses the best model, so far WER did; the best so far has loss "));
  validations = log_events(run, "validation");
  double lowest = 1e9;
  int64_t by_wer = 0;
  for (size_t i = 0; i < validations.size() && validations[i].at("step") <= 48; ++i) {
    if (validations[i].at("best")) lowest = validations[i].at("loss");
    if (validations[i].at("best")) by_wer = validations[i].at("step");
  }
  int64_t kept = by_wer;
  for (const Json& v : validations) {
    if (v.at("step") <= 48) continue;
    const double loss = v.at("loss");
    CHECK(v.at("best") == (loss < lowest));
    if (loss < lowest) kept = v.at("step");
    lowest = std::min(lowest, loss);
  }
  CHECK(best(run) == stored(generation_of_step(run, kept), ""));
}

TEST_CASE("average_best averages what the metric calls the best, and never ends worse", "[slow]") {
  const TrainingCorpus corpus(24, 12);
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Config c = validated(corpus, "run" + std::to_string(seed), Metric::cer);
    c.training.seed = seed;
    c.training.average_best = 3;
    c.training.max_steps = 60;
    const std::string told = messages_of(c, StartFrom::scratch);
    const std::string& run = c.training.checkpoint_dir;
    const auto validations = log_events(run, "validation");
    std::vector<std::tuple<double, double, int64_t>> order;
    for (const Json& v : validations) {
      order.emplace_back(std::min(v.at("cer").get<double>(), 1.0), v.at("loss"), v.at("step"));
    }
    std::sort(order.begin(), order.end());
    std::vector<double> mean(best(run).size());
    for (size_t n = 0; n < 3; ++n) {
      const auto w = stored(generation_of_step(run, std::get<2>(order[n])), "");
      for (size_t i = 0; i < w.size(); ++i) mean[i] += static_cast<double>(w[i]) / 3;
    }
    REQUIRE_THAT(told, Contains("average of the best 3 checkpoints: CER "));
    if (told.find(", not kept: the best model has CER ") == std::string::npos) {
      CHECK_THAT(told, Contains(", kept"));
      check_close(best(run), mean);
    } else {
      CHECK(best(run) == stored(generation_of_step(run, std::get<2>(order[0])), ""));
    }
  }
}

TEST_CASE("after another metric the average is of validations since then, when it goes on too",
          "[slow]") {
  const TrainingCorpus corpus(24, 12);
  for (const int keep_last : {2, 1000}) {
    CAPTURE(keep_last);
    Config c = validated(corpus, str("run", keep_last), Metric::cer);
    c.training.keep_last = keep_last;
    c.training.keep_best = 3;
    c.training.max_steps = 60;
    train(c, {});
    const std::string& run = c.training.checkpoint_dir;
    const Weights then = stored(generation_of_step(run, 60), "");
    REQUIRE(best(run) == then);
    // From here on all weights are the same. Rates far below the losses would be the best of all.
    c.training.metric = Metric::loss;
    c.training.average_best = 3;
    c.optimizer.learning_rate = 1e-30;
    for (const int64_t steps : {84, 96}) {
      CAPTURE(steps);
      c.training.max_steps = steps;
      const std::string told = messages_of(c);
      CHECK((told.find("from here on loss chooses") != std::string::npos) == (steps == 84));
      CHECK_THAT(told, Contains("average of the best 3 checkpoints: loss ") && Contains(", kept"));
      CHECK(best(run) == then);
      CHECK(state_of(run).chosen_by_since == 60);
      if (keep_last > 2) continue;
      for (const CheckpointInfo& kept : list_checkpoints(run)) CHECK(kept.step > 60);
    }
  }
}

TEST_CASE("an average that another metric chose does not stand in the way of better models",
          "[slow]") {
  const TrainingCorpus corpus(24, 12);
  Config c = validated(corpus, "run", Metric::cer);
  c.training.max_steps = 60;
  train(c, {});
  c.training.max_steps = 72;
  c.training.average_best = 3;
  c.optimizer.learning_rate = 1e-30;
  CHECK_THAT(messages_of(c),
             Contains("average of the best 3 checkpoints: CER ") && Contains(", kept"));
  // Its rate of errors is less than any loss.
  c.training.max_steps = 160;
  c.training.average_best = 0;
  c.training.metric = Metric::loss;
  c.optimizer.learning_rate = 0.05;
  messages_of(c);
  const std::string& run = c.training.checkpoint_dir;
  const int64_t lowest = best_by(log_events(run, "validation"), "loss");
  REQUIRE(lowest > 72);
  CHECK(best(run) == stored(generation_of_step(run, lowest), ""));
}

TEST_CASE("an average that is exactly as good as the best model is kept, and stays", "[slow]") {
  const TrainingCorpus corpus(24, 12);
  for (const Metric metric : {Metric::loss, Metric::cer}) {
    CAPTURE(name_of(metric));
    Config c = validated(corpus, name_of(metric), metric);
    const std::string& run = c.training.checkpoint_dir;
    c.training.average_best = 2;
    c.training.max_steps = 8;
    c.optimizer.learning_rate = 1e-30;  // no weight moves
    const auto origin = [&] {
      const SafetensorsFile file(run + "/model.safetensors");
      return ModelDescription::from_metadata(file.metadata(), "the model").origin;
    };
    train(c, {});
    const Json first = log_events(run, "validation").at(0);
    CHECK(origin().averaged == 2);
    CHECK(origin().metric == first.at(name_of(metric)));
    CHECK(origin().loss == first.at("loss"));
    // As if every validation to come were the best so far. First another average as good, then
    // validations as good, then a worse one, of a loss above 1.
    for (const auto& [average_best, lr] : {std::pair(2, 1e-30), {0, 1e-30}, {0, 100.0}}) {
      CAPTURE(average_best, lr);
      if (lr > 1 && metric != Metric::loss) continue;  // noise may meet a letter by chance
      change_state(run, [](Json& state) { state["best_metric"] = state["best_loss"] = nullptr; });
      c.training.average_best = average_best;
      c.training.max_steps += 4;
      c.optimizer.learning_rate = lr;
      messages_of(c);
      const Json last = log_events(run, "validation").back();
      REQUIRE(last.at("step") == c.training.max_steps);
      REQUIRE((last.at("loss") > first.at("loss")) == (lr > 1));
      REQUIRE(last.at("loss") > 1);
      CHECK(origin().averaged == 2);
      CHECK(origin().updates == 12);  // the second average's
    }
  }
}

TEST_CASE("an average stays the model of a run that goes on until something is better", "[slow]") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("run");
  c.training.epochs = 12;
  c.data.sorta_grad = false;
  c.optimizer.learning_rate = 0.6;  // around the minimum, not into it
  c.training.average_best = 5;
  const double told = train(c, {}).best_metric;
  const std::string& run = c.training.checkpoint_dir;
  const Weights average = best(run);
  const auto loss_of = [&](const Weights& w) {
    std::vector<ColumnUtterance> dev = corpus.train;
    for (ColumnUtterance& u : dev) u.target += 0.25;
    std::vector<size_t> all(dev.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    return column_loss(w, dev, all);
  };
  const double before = loss_of(average);
  double lowest = 1e9;
  for (const Json& v : log_events(run, "validation")) {
    lowest = std::min(lowest, v.at("loss").get<double>());
  }
  REQUIRE(before < lowest);
  CHECK(told == Approx(before).epsilon(1e-5));
  // As if every validation to come were the best so far.
  change_state(run, [](Json& state) { state["best_metric"] = state["best_loss"] = nullptr; });
  c.training.epochs = 13;
  c.training.average_best = 0;
  require_success(train_on(1, c, StartFrom::checkpoint));
  REQUIRE(log_events(run, "validation").back().at("loss") > before);
  CHECK(best(run) == average);
  c.training.epochs = 30;
  c.optimizer.learning_rate = 0.1;  // now into it
  require_success(train_on(1, c, StartFrom::checkpoint));
  CHECK(loss_of(best(run)) < before);
  CHECK(best(run) != average);
}
