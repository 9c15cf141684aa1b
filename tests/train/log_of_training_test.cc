// What log.jsonl and the TensorBoard events say of a run is what happened (docs/training.md).

#include "tests/catch.h"
#include "tests/train/event_file.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;

TEST_CASE("a line of the log has the mean loss since the line before, over utterances") {
  const ColumnCorpus corpus;
  const ObservedRun each = observe(corpus, corpus.config("each"));
  for (int every : {3, 4}) {
    Config c = corpus.config("every" + std::to_string(every));
    c.training.log_every_steps = every;
    const ObservedRun run = observe(corpus, c);
    CHECK(run.weights == each.weights);
    REQUIRE(run.steps.size() == each.steps.size() / static_cast<size_t>(every));
    size_t next = 0;
    for (const Json& line : run.steps) {
      double sum = 0, utterances = 0;
      const auto step = line.at("step").get<size_t>();
      CHECK(step == next + static_cast<size_t>(every));
      for (; next < step; ++next) {
        const auto n = static_cast<double>(each.moved(static_cast<int64_t>(next) + 1).size());
        sum += n * each.steps[next].at("loss").get<double>();
        utterances += n;
      }
      CHECK(line.at("loss") == Approx(sum / utterances).epsilon(1e-9));
      for (const char* field : {"epoch", "lr", "gradient_norm", "skipped"}) {
        CHECK(line.at(field) == each.steps[step - 1].at(field));
      }
      CHECK(line.at("frames_per_second") > 0);
      CHECK(line.at("input_wait_share") >= 0);
      CHECK(line.at("input_wait_share") <= 1);
    }
  }
}

TEST_CASE("the log's start, memory and end are of this run") {
  const ColumnCorpus corpus;
  Config c = corpus.config("run");
  c.training.seed = 7;
  const ObservedRun run = observe(corpus, c, 2);
  const Json start = log_events(run.directory, "start").at(0);
  CHECK(start.at("step") == 0);
  CHECK(start.at("weights") == corpus.size() + 1);
  CHECK(start.at("utterances") == corpus.size());
  CHECK(start.at("seed") == 7);
  CHECK(start.at("rank") == 0);
  CHECK(start.at("ranks") == 2);
  const Json memory = log_events(run.directory, "memory").at(0);
  CHECK(memory.at("activations") > 0);
  CHECK(memory.at("resident") > 1 << 20);
  const Json end = log_events(run.directory, "end").at(0);
  CHECK(end.at("step") == run.updates());
  CHECK(end.at("peak_resident") >= memory.at("resident"));
  double before = 0;
  for (const Json& s : run.steps) {
    CHECK(s.at("seconds") >= before);
    before = s.at("seconds");
  }
}

TEST_CASE("TensorBoard is told what the log is told") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("run");
  c.training.tensorboard = corpus.folder.path("board");
  c.training.log_every_steps = 2;
  const ObservedRun run = observe(corpus, c);
  const std::map<std::string, Series> board = read_events(c.training.tensorboard);
  const auto check_series = [&](const std::string& tag, const std::vector<Json>& events,
                                const std::string& field) {
    INFO(tag);
    REQUIRE(board.contains(tag));
    Series wanted;
    for (const Json& e : events) {
      wanted.emplace_back(e.at("step").get<int64_t>(), e.at(field).get<float>());
    }
    CHECK(board.at(tag) == wanted);
  };
  check_series("loss/train", run.steps, "loss");
  check_series("learning_rate", run.steps, "lr");
  check_series("gradient_norm", run.steps, "gradient_norm");
  check_series("frames_per_second", run.steps, "frames_per_second");
  check_series("loss/dev", log_events(run.directory, "validation"), "loss");
}

TEST_CASE("TensorBoard has the error rates and the samples of the dev data") {
  const TrainingCorpus corpus(12, 4);
  Config c = corpus.config("run");
  c.training.max_steps = 10;
  c.training.samples = 2;
  c.training.validate_every_steps = 5;
  c.training.tensorboard = corpus.folder.path("board");
  require_success(train_on(1, c));
  const auto validations = log_events(c.training.checkpoint_dir, "validation");
  const auto board = read_events(c.training.tensorboard);
  for (const char* name : {"wer", "cer"}) {
    Series wanted;
    for (const Json& v : validations) {
      wanted.emplace_back(v.at("step").get<int64_t>(), v.at(name).get<float>());
    }
    CHECK(board.at(std::string(name) + "/dev") == wanted);
  }
  CHECK(board.at("samples").size() == validations.size());
}
