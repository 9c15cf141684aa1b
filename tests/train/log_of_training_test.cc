// What log.jsonl and the TensorBoard events say of a run is what happened (docs/training.md).

#include "tests/catch.h"
#include "tests/train/event_file.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;

TEST_CASE("a line of the log has the mean loss since the line before, over utterances", "[slow]") {
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

TEST_CASE("an utterance whose loss is not finite counts in no line's mean", "[slow]") {
  const ColumnCorpus plain;
  const auto batches = observe(plain, plain.config("plain")).moved();
  std::vector<ColumnUtterance> train = plain.train;
  train[4].target = 1.9e19;  // whose square is infinite, and the gradient is not
  const ColumnCorpus corpus(train);
  struct Losses final : TrainingObserver {
    std::vector<double> all;
    void stepped(const Step& step) override { all.push_back(step.loss); }
  };
  for (const int every : {1, 2}) {
    for (const int ranks : {1, 2}) {
      CAPTURE(every, ranks);
      Config c = corpus.config(str("run", every, ranks));
      c.optimizer.learning_rate = 1e-30;
      c.training.log_every_steps = every;
      Losses observed;
      require_success(
          train_on(ranks, c, StartFrom::scratch, [&](int rank, Config&, TrainerOptions& o) {
            if (rank == 0) o.observer = &observed;
          }));
      const Weights w = stored(newest(c.training.checkpoint_dir), "");
      const auto lines = log_events(c.training.checkpoint_dir, "step");
      REQUIRE(lines.size() == batches.size() / static_cast<size_t>(every));
      REQUIRE(observed.all.size() == batches.size());
      size_t counted = 0, next = 0;
      for (const Json& line : lines) {
        std::vector<size_t> all;
        for (; next < line.at("step").get<size_t>(); ++next) {
          std::vector<size_t> others = listed(batches[next]);
          std::erase(others, size_t{4});
          counted += others.size();
          if (!others.empty()) {
            CHECK(observed.all[next] == Approx(column_loss(w, train, others)).epsilon(1e-5));
          } else {
            CHECK(std::isnan(observed.all[next]));
          }
          all.insert(all.end(), others.begin(), others.end());
        }
        if (!all.empty()) {
          CHECK(line.at("loss") == Approx(column_loss(w, train, all)).epsilon(1e-5));
        }
      }
      CHECK(counted == (corpus.size() - 1) * static_cast<size_t>(c.training.epochs));
    }
  }
}

TEST_CASE("a dev utterance with more text than its frames can spell counts in no mean of losses",
          "[slow]") {
  const TrainingCorpus corpus(6, 7);
  Config c = corpus.config("plain");
  c.optimizer.learning_rate = 1e-30;
  c.training.max_steps = 2;
  c.training.validate_every_steps = 2;
  const auto dev_loss = [&](int ranks) {
    require_success(train_on(ranks, c));
    const auto validations = log_events(c.training.checkpoint_dir, "validation");
    REQUIRE(!validations.empty());
    return validations.back().at("loss");
  };
  const double mean = dev_loss(1);
  REQUIRE(mean > 0);
  // Two more that cannot be, the first and the last, twice the same.
  corpus.folder.write("short.npy", npy_bytes(std::vector<float>(8, 0.5F), 4));
  const std::string impossible = "{\"features_filepath\": \"short.npy\", \"text\": \"aa\"}\n";
  corpus.folder.write("dev.jsonl",
                      impossible + bytes_of(corpus.folder.path("dev.jsonl")) + impossible);
  for (const int64_t batch_frames : {30, 60, 100000}) {
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(batch_frames, ranks);
      c.data.batch_frames = batch_frames;
      c.training.tensorboard = corpus.folder.path(str("board", batch_frames, ranks));
      c.training.checkpoint_dir = corpus.folder.path(str("run", batch_frames, ranks));
      CHECK(dev_loss(ranks) == Approx(mean).epsilon(1e-5));
      const Series shown = read_events(c.training.tensorboard).at("loss/dev");
      REQUIRE(!shown.empty());
      CHECK(shown.back().second == Approx(mean).epsilon(1e-5));
    }
  }
  // Of nothing there is no mean.
  corpus.folder.write("dev.jsonl", impossible);
  c.training.tensorboard = corpus.folder.path("empty");
  c.training.checkpoint_dir = corpus.folder.path("nothing");
  CHECK(dev_loss(1) == "nan");
  CHECK(!read_events(c.training.tensorboard).contains("loss/dev"));
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

TEST_CASE("ranks' logs agree which of them was the slowest, since the line before") {
  const ColumnCorpus corpus;
  Config c = corpus.config("run");
  c.training.log_every_steps = 2;
  const ObservedRun run = observe(corpus, c, 3);
  REQUIRE(run.steps.size() > 6);
  std::vector<std::vector<Json>> logs;
  for (int rank = 0; rank < 3; ++rank) {
    std::ifstream in(run.directory + (rank ? str("/log.rank-", rank, ".jsonl") : "/log.jsonl"));
    logs.emplace_back();
    for (std::string line; std::getline(in, line);) {
      const Json j = Json::parse(line);
      if (j.at("event") == "step") logs.back().push_back(j);
      if (j.at("event") == "start") CHECK(j.at("rank") == rank);
    }
    REQUIRE(logs.back().size() == run.steps.size());
  }
  std::vector<std::vector<double>> told;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    std::vector<double> computed;
    for (const auto& log : logs) computed.push_back(log[i].at("compute_seconds"));
    told.push_back(computed);
    const auto slowest = std::max_element(computed.begin(), computed.end());
    for (const auto& log : logs) {
      CHECK(log[i].at("slowest_rank") == slowest - computed.begin());
      CHECK(log[i].at("slowest_compute_seconds") == *slowest);
      CHECK(log[i].at("loss") == run.steps[i].at("loss"));
    }
    CHECK(computed[0] > 0);
  }
  // Sums since the beginning would never fall, on no rank; times of each line do.
  CHECK_FALSE(std::is_sorted(told.begin(), told.end(), [](const auto& a, const auto& b) {
    return !std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
  }));
}

TEST_CASE("samples are the first utterances of the dev data, on any number of ranks") {
  const TrainingCorpus corpus(12, 9);
  std::vector<std::string> wanted;
  std::istringstream manifest(bytes_of(corpus.folder.path("dev.jsonl")));
  for (std::string line; std::getline(manifest, line) && wanted.size() < 5;)
    wanted.push_back("    reference  " + Json::parse(line).at("text").get<std::string>());
  std::vector<std::string> of_one;
  for (const int ranks : {1, 3}) {
    Config c = corpus.config("ranks" + std::to_string(ranks));
    c.training.max_steps = 2;
    c.training.samples = 5;
    c.optimizer.learning_rate =
        1e-30;  // the same weights, which write anything, on any number of ranks
    require_success(train_on(ranks, c));
    std::vector<std::string> all, found;
    for (const Json& line : log_events(c.training.checkpoint_dir, "message")) {
      const std::string text = line.at("text");
      if (text.starts_with("    ")) all.push_back(text);
      if (text.starts_with("    reference")) found.push_back(text);
      // Neither is the other.
      if (!text.starts_with("    hypothesis ")) continue;
      const std::string hypothesis = text.substr(text.find_last_of(' ') + 1);
      CHECK(!hypothesis.empty());
      CHECK(!found.back().ends_with("  " + hypothesis));
    }
    CHECK(found == wanted);
    if (of_one.empty()) of_one = all;
    CHECK(all == of_one);
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

namespace {

// As a kill leaves a run: the log has more than the newest checkpoint, and half a line.
void kill_after(const Config& c, int64_t step) {
  for (const CheckpointInfo& info : list_checkpoints(c.training.checkpoint_dir)) {
    if (info.step > step) {
      std::filesystem::remove_all(checkpoint_path(c.training.checkpoint_dir, info.generation));
    }
  }
  const std::string& log = c.training.log;
  std::ofstream(log.empty() ? c.training.checkpoint_dir + "/log.jsonl" : log, std::ios::app)
      << "{\"event\":\"st";
}

std::vector<Json> lines_of(const std::string& directory) {
  std::istringstream in(bytes_of(directory + "/log.jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Event and step of each line that is about a step.
std::vector<std::pair<std::string, int64_t>> steps_in(const std::vector<Json>& lines) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const Json& line : lines) {
    const std::string event = line.at("event");
    if (event == "step" || event == "validation") all.emplace_back(event, line.at("step"));
  }
  return all;
}

}  // namespace

TEST_CASE("the log of a run that was killed and goes on has each step once, as if it never was",
          "[slow]") {
  const ColumnCorpus corpus;
  for (int ranks : {1, 2}) {
    Config c = corpus.with_dev("run" + std::to_string(ranks));
    c.training.epochs = 4;
    const ObservedRun whole = observe(corpus, c, ranks);
    const auto wanted = steps_in(lines_of(whole.directory));
    const auto rates = values_of(whole.steps, "loss");
    REQUIRE(whole.updates() > 9);
    for (const int64_t step : {int64_t{7}, int64_t{7}, whole.updates() - 1}) {
      kill_after(c, step);
      require_success(train_on(ranks, c, StartFrom::checkpoint));
      const std::vector<Json> lines = lines_of(whole.directory);
      CHECK(steps_in(lines) == wanted);
      CHECK(values_of(log_events(whole.directory, "step"), "loss") == rates);
      CHECK(log_events(whole.directory, "start").size() == 1);
      CHECK(log_events(whole.directory, "end").size() == 1);
      const auto resumed = log_events(whole.directory, "resume");
      REQUIRE(resumed.size() == (step == 7 ? 1 : 2));  // of that which left nothing no line
      CHECK(resumed.back().at("step") == step);
      if (ranks < 2) continue;
      std::set<int64_t> once;
      std::ifstream other(whole.directory + "/log.rank-1.jsonl");
      for (std::string line; std::getline(other, line);) {
        const Json j = Json::parse(line);
        if (j.at("event") == "step") CHECK(once.insert(j.at("step").get<int64_t>()).second);
      }
      CHECK(static_cast<int64_t>(once.size()) == whole.updates());
    }
  }
}

TEST_CASE("a run that was killed before its first checkpoint begins its log anew") {
  const ColumnCorpus corpus;
  Config c = corpus.config("run");
  train(c, {});
  const auto wanted = steps_in(lines_of(c.training.checkpoint_dir));
  kill_after(c, 0);
  std::filesystem::remove(c.training.checkpoint_dir + "/model.safetensors");
  require_success(train_on(1, c, StartFrom::checkpoint_if_any));
  CHECK(steps_in(lines_of(c.training.checkpoint_dir)) == wanted);
  CHECK(log_events(c.training.checkpoint_dir, "start").size() == 1);
}

TEST_CASE("of a log that runs share, none takes out what another wrote", "[slow]") {
  const ColumnCorpus corpus;
  Config first = corpus.config("first"), second = corpus.config("second");
  first.training.log = second.training.log = corpus.folder.path("shared.jsonl");
  train(first, {});
  const std::string of_first = bytes_of(first.training.log);
  train(second, {});
  const std::string of_both = bytes_of(first.training.log);
  CHECK(of_both.substr(0, of_first.size()) == of_first);
  kill_after(first, 4);
  require_success(train_on(1, first, StartFrom::checkpoint));
  CHECK(bytes_of(first.training.log).substr(0, of_both.size()) == of_both);
  // The run that was the last to begin takes its own back.
  const Config third = [&] {
    Config t = corpus.config("third");
    t.training.log = first.training.log;
    return t;
  }();
  const std::string of_others = bytes_of(first.training.log);
  train(third, {});
  const std::string of_all = bytes_of(first.training.log);
  kill_after(third, 4);
  require_success(train_on(1, third, StartFrom::checkpoint));
  const std::string cut = bytes_of(first.training.log);
  CHECK(cut.substr(0, of_others.size()) == of_others);
  std::set<int64_t> once;
  std::istringstream lines(cut.substr(of_others.size()));
  for (std::string line; std::getline(lines, line);) {
    const Json j = Json::parse(line);
    if (j.at("event") == "step") CHECK(once.insert(j.at("step").get<int64_t>()).second);
  }
  CHECK(once.size() > 4);
}

TEST_CASE("TensorBoard is told from which step on a run that goes on writes anew") {
  const ColumnCorpus corpus;
  Config c = corpus.with_dev("run");
  c.training.tensorboard = corpus.folder.path("board");
  const ObservedRun whole = observe(corpus, c);
  kill_after(c, 5);
  require_success(train_on(1, c, StartFrom::checkpoint));
  std::vector<std::string> files;  // as TensorBoard reads them
  for (const auto& file : std::filesystem::directory_iterator(c.training.tensorboard)) {
    files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() == 2);
  CHECK(session_starts(files[0]).empty());
  CHECK(session_starts(files[1]) == std::vector<int64_t>{6});
  // What TensorBoard shows: an event of a START's step, or of a later one, is gone.
  Series shown = read_events_of(files[0]).at("loss/train");
  std::erase_if(shown, [](const auto& point) { return point.first >= 6; });
  const Series more = read_events_of(files[1]).at("loss/train");
  shown.insert(shown.end(), more.begin(), more.end());
  CHECK(shown == read_events_of(files[0]).at("loss/train"));
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
  // The metric that chooses, of the best model so far.
  Series best;
  for (const Json& v : validations) {
    const auto wer = v.at("wer").get<float>();
    const float before = best.empty() ? 2 : best.back().second;
    best.emplace_back(v.at("step").get<int64_t>(), v.at("best") ? wer : before);
  }
  CHECK(board.at("best/wer") == best);
  CHECK(board.at("samples").size() == validations.size());
}
