// train() as a call: what it prints, tells, leaves in the process, and writes.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cmath>
#include <iterator>
#include <random>

#include "engine/io/signals.h"
#include "engine/report/charts.h"
#include "engine/report/jsonl.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/recognition/recognizer.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
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

// Recordings that are not in files: "b-17" is the letter b as a tone of 0.2 s, between pauses of
// noise or, for odd numbers, of digital silence.
class Tones final : public AudioReader {
 public:
  AudioInfo info(const FilePart& file) const override {
    return {8000, 1, static_cast<int64_t>(samples(file.path).size())};
  }
  Waveform read(const FilePart& file, int32_t rate, AudioSegment) const override {
    // Several threads read; Catch2's assertions are for one.
    if (rate != 8000) throw Error(str("a rate of ", rate));
    return {rate, samples(file.path)};
  }

 private:
  static std::vector<float> samples(const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    const auto number = static_cast<unsigned>(std::stoi(name.substr(2)));
    std::mt19937 random(number);
    const bool is_noisy = number % 2 == 0;
    std::normal_distribution<float> noise(0, 0.003f);
    std::vector<float> x(4000 + 40 * (number % 7));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = is_noisy ? noise(random) : 0;
      if (i < 1200 || i >= 2800) continue;
      x[i] += 0.3f * std::sin(0.3f * static_cast<float>(name[0] - 'a' + 1) * static_cast<float>(i));
    }
    return x;
  }
};

}  // namespace

TEST_CASE("a trained model writes nothing for digital silence and for no sound at all",
          "[trainer][slow]") {
  const TemporaryFolder folder;
  for (const char* part : {"train", "dev"}) {
    std::string manifest;
    for (int i = 0; i < 24; ++i) {
      const std::string letter(1, static_cast<char>('a' + i % 3));
      manifest += "{\"audio_filepath\": \"" + letter + "-" + std::to_string(i) +
                  "\", \"text\": \"" + letter + "\"}\n";
    }
    folder.write(std::string(part) + ".jsonl", manifest);
  }
  const Tones tones;
  for (const Cmvn cmvn : {Cmvn::utterance, Cmvn::global, Cmvn::none}) {
    Config c;
    c.data.train = folder.path("train.jsonl");
    c.data.dev = folder.path("dev.jsonl");
    c.data.batch_frames = 400;
    c.features.rate = 8000;
    c.features.bins = 20;
    c.features.cmvn = cmvn;
    c.model.hidden = 16;
    c.model.layers = 1;
    c.model.dropout = 0;
    c.training.threads = 1;
    c.training.epochs = 60;
    c.training.max_steps = cmvn == Cmvn::utterance ? 240 : 20;
    c.training.checkpoint_dir = folder.path(std::string("run") + name_of(cmvn_mode_of(c.features)));
    c.optimizer.learning_rate = 0.02;
    TrainerOptions o;
    o.audio = &tones;
    INFO(name_of(cmvn_mode_of(c.features)));
    const double metric = train(c, o).best_metric;
    Recognizer model(c.training.checkpoint_dir, DeviceId{}, 1);
    if (cmvn == Cmvn::utterance) {  // it has learnt to write, and would
      CHECK(metric < 0.1);
      CHECK(model.transcribe(tones.read("b-4", 8000, {})).text == "b");
    }
    for (const size_t samples : {size_t{0}, size_t{10}, size_t{4000}, size_t{80000}}) {
      const Waveform silence{8000, std::vector<float>(samples)};
      const Transcript t = model.transcribe(silence);
      CHECK(t.text == "");
      CHECK(
          std::all_of(t.logits.begin(), t.logits.end(), [](float x) { return std::isfinite(x); }));
    }
  }
}

TEST_CASE("a model with weights that are no numbers is named, with the tensor", "[trainer]") {
  const TrainingCorpus corpus;
  Config config = corpus.config("run");
  config.training.max_steps = 2;
  train(config, {});
  const std::string file = corpus.folder.path("run") + "/model.safetensors";
  const SafetensorsFile good(file);
  const StoredTensor& first = good.tensors().front();
  std::vector<float> values(first.as<float>().begin(), first.as<float>().end());
  std::vector<TensorToWrite> tensors;
  for (const StoredTensor& t : good.tensors()) {
    const void* const data =
        &t == &first ? static_cast<const void*>(values.data()) : t.bytes.data();
    tensors.push_back({t.name, t.dtype, t.shape, data});
  }
  StringMap metadata = good.metadata();
  metadata.erase("checksum");
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    values.at(1) = bad;
    const std::string broken = corpus.folder.path("broken.safetensors");
    write_safetensors(fs::path(broken), tensors, metadata);
    CHECK_THROWS_WITH(Recognizer(broken, DeviceId{}, 1),
                      Catch::Contains(": tensor '" + first.name + "' holds ") &&
                          Catch::Contains(" at element 1, expected finite weights"));
    Config next = corpus.config("next");
    next.training.init_from = broken;
    CHECK_THROWS_AS(train(next, {}), InputError);
  }
}

TEST_CASE("a loss over no utterances is no number", "[trainer]") {
  Evaluation nothing;
  nothing.combine([](std::span<double>) {});
  CHECK(std::isnan(nothing.loss));
  CHECK(nothing.value(Metric::loss) == std::numeric_limits<double>::infinity());
  CHECK(loss_text(nothing.loss) == "n/a");
  CHECK(loss_text(0.25) == "0.2500");
}

TEST_CASE("train() reads its manifest once", "[trainer]") {
  const TrainingCorpus corpus;
  // Between the checks of settings and data, before the directory is made, and the run's own work.
  struct Remover final : TrainingObserver {
    std::string manifest;
    void message(const std::string& text) override {
      if (text.find("starting anew") != std::string::npos) std::filesystem::remove(manifest);
    }
  } remover;
  Config c = corpus.config("run");
  remover.manifest = c.data.train;
  c.training.max_steps = 1;
  TrainerOptions o;
  o.start = StartFrom::checkpoint_if_any;
  o.observer = &remover;
  CHECK(train(c, o).steps == 1);
  CHECK_FALSE(std::filesystem::exists(remover.manifest));
}

TEST_CASE("train() takes little of its caller's stack", "[trainer]") {
  const TrainingCorpus corpus;
  Config c = corpus.config("run");
  c.training.max_steps = 2;
  int64_t steps = 0;
  const std::function<void()> body = [&] { steps = train(c, {}).steps; };
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const size_t bytes = 2 << 20;  // their frames, not optimised, are many times as large
#else
  const size_t bytes = 128 << 10;
#endif
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread;
  const auto run = [](void* work) -> void* {
    (*static_cast<const std::function<void()>*>(work))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run,
                         const_cast<void*>(static_cast<const void*>(&body))) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  REQUIRE(pthread_attr_destroy(&attributes) == 0);
  CHECK(steps == 2);
}

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
  config.optimizer.learning_rate = 1e30;
  config.optimizer.clip_norm = 0;
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
