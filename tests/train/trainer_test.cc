// train() as a call: what it prints, tells, leaves in the process, and writes.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "engine/io/signals.h"
#include "engine/report/charts.h"
#include "engine/report/jsonl.h"
#include "tests/train/train_on.h"

using namespace rondo;
using namespace rondo::test;

namespace {

namespace fs = std::filesystem;

// What `act` writes to the descriptors of standard output and standard error.
std::string printed_by(const fs::path& file, const std::function<void()>& act) {
  std::fflush(nullptr);
  const int target = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int kept[] = {::dup(1), ::dup(2)};
  ::dup2(target, 1);
  ::dup2(target, 2);
  act();
  std::fflush(nullptr);
  ::dup2(kept[0], 1);
  ::dup2(kept[1], 2);
  for (const int fd : {target, kept[0], kept[1]}) ::close(fd);
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Notes final : TrainingObserver {
  std::vector<std::string> messages;
  std::vector<Step> steps;
  std::vector<Validation> validations;
  std::function<void()> at_validation;

  void message(const std::string& text) override { messages.push_back(text); }
  void stepped(const Step& step) override { steps.push_back(step); }
  void validated(const Validation& validation) override {
    validations.push_back(validation);
    if (at_validation) at_validation();
  }
};

}  // namespace

TEST_CASE("train() prints nothing unasked, and tells its observer", "[trainer]") {
  const TrainingCorpus corpus;
  Notes notes;
  TrainingSummary s;
  TrainerOptions o;
  o.observer = &notes;
  const Config config = corpus.config("run");
  CHECK(printed_by(corpus.folder.path("printed"), [&] { s = train(config, o); }) == "");
  CHECK(s.steps == 50);
  CHECK_FALSE(s.stopped_by_signal);
  REQUIRE(notes.steps.size() == 50);
  CHECK(notes.steps.front().step == 1);
  CHECK(notes.steps.front().learning_rate == Approx(0.1));
  CHECK(notes.steps.back().loss < notes.steps.front().loss);
  REQUIRE(!notes.validations.empty());
  CHECK(notes.validations.front().best);
  double best = 1e9;
  for (const auto& v : notes.validations) best = std::min(best, v.metric);
  CHECK(best == s.best_metric);
  CHECK_FALSE(notes.messages.empty());
  // What nobody was shown is in the log.
  CHECK(bytes_of(corpus.folder.path("run") + "/log.jsonl").find(notes.messages.front()) !=
        std::string::npos);
}

TEST_CASE("train() stops when its own caller asks, and nothing of that stays", "[trainer]") {
  const TrainingCorpus corpus;
  const Config config = corpus.config("run");
  Notes notes;
  TrainerOptions o;
  o.observer = &notes;
  o.stop = [&] { return notes.steps.size() >= 7; };
  TrainingSummary s = train(config, o);
  CHECK(s.stopped_by_signal);
  CHECK(s.steps < 12);
  o.stop = {};
  o.start = StartFrom::checkpoint;
  request_stop();  // somebody else's, of the whole process
  s = train(config, o);
  const SignalGuard forgets;
  CHECK_FALSE(s.stopped_by_signal);
  CHECK(s.steps == 50);
}

TEST_CASE("the same run in two directories writes the same model file", "[trainer]") {
  const TrainingCorpus corpus;
  for (const char* name : {"one", "two"}) {
    Config config = corpus.config(name);
    config.training.log = corpus.folder.path(std::string(name) + ".log.jsonl");
    train(config, {});
  }
  CHECK(bytes_of(corpus.folder.path("one") + "/model.safetensors") ==
        bytes_of(corpus.folder.path("two") + "/model.safetensors"));
}

TEST_CASE("a log that a power cut has filled with zeros stops no run that goes on", "[trainer]") {
  const TrainingCorpus corpus;
  Config config = corpus.config("run");
  config.training.max_steps = 20;
  train(config, {});
  const fs::path log = fs::path(config.training.checkpoint_dir) / "log.jsonl";
  const auto size = static_cast<size_t>(fs::file_size(log));
  config.training.max_steps = 25;
  TrainerOptions o;
  o.start = StartFrom::checkpoint;
  for (const size_t whole : {size_t{0}, size_t{4}, size / 2}) {
    std::string text = bytes_of(log).substr(0, size);
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(whole), text.end(), '\0');
    std::ofstream(log, std::ios::binary) << text;
    config.training.max_steps += 5;
    CHECK(train(config, o).steps == config.training.max_steps);
    CHECK(bytes_of(log).find("\n{\"event\":\"resume\"") != std::string::npos);
  }
  // Anything else is somebody else's file.
  std::ofstream(log, std::ios::binary) << "dear diary";
  CHECK_THROWS_WITH(train(config, o), Catch::Contains("is no log of a training run"));
}

TEST_CASE("the log is read for the first curve alone", "[trainer]") {
  const TrainingCorpus corpus;
  const Config config = corpus.config("run");
  const fs::path log = fs::path(config.training.checkpoint_dir) / "log.jsonl";
  Notes notes;
  notes.at_validation = [&] {
    if (notes.validations.size() == 2) fs::rename(log, fs::path(log) += ".moved");
  };
  TrainerOptions o;
  o.observer = &notes;
  train(config, o);
  CHECK(notes.validations.size() > 2);
  // And the curve has what came after.
  TrainingLog in_memory = read_training_log(fs::path(log) += ".moved");
  CHECK(in_memory.series.at("validation.wer").y.size() == notes.validations.size());
  CHECK(bytes_of(fs::path(config.training.checkpoint_dir) / "learning_curve.svg") ==
        learning_curve_svg(learning_curve_of(in_memory, "run")));
}

TEST_CASE("a step that ends training is one step, not steps in a row", "[trainer]") {
  const TrainingCorpus corpus;
  Config config = corpus.config("run");
  config.optimizer.lr = 1e30;
  config.training.clip = 0;
  for (const int limit : {1, 3}) {
    config.training.non_finite_limit = limit;
    config.training.checkpoint_dir = corpus.folder.path(std::to_string(limit));
    CHECK_THROWS_WITH(train(config, {}),
                      Catch::Contains(limit == 1 ? ": a step had a gradient that is not finite"
                                                 : ": 3 steps in a row had a gradient"));
  }
}

TEST_CASE("what a killed run left half-written is gone after the next", "[trainer]") {
  const TrainingCorpus corpus;
  Config config = corpus.config("run");
  config.training.max_steps = 5;
  fs::create_directory(config.training.checkpoint_dir);
  const auto in_run = [&](const char* name) {
    return fs::path(config.training.checkpoint_dir) / name;
  };
  const std::vector<const char*> gone = {"model.safetensors.tmp-4711", "config.toml.tmp-4711",
                                         "learning_curve.svg.tmp-12"};
  const std::vector<const char*> kept = {"model.safetensors.tmp-old", "notes.tmp-4711"};
  for (const char* name : gone) std::ofstream(in_run(name)) << "half";
  for (const char* name : kept) std::ofstream(in_run(name)) << "mine";
  {
    // Of a run that goes on.
    const CheckpointStore other(config.training.checkpoint_dir, {});
    CHECK_THROWS_AS(train(config, {}), InputError);
    for (const char* name : gone) CHECK(fs::exists(in_run(name)));
  }
  train(config, {});
  for (const char* name : gone) CHECK_FALSE(fs::exists(in_run(name)));
  for (const char* name : kept) CHECK(fs::exists(in_run(name)));
}
