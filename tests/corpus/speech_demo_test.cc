#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/data/audio/audio.h"
#include "engine/data/features/run_program.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/corpus/corpus_files.h"
#include "tests/data/temporary_folder.h"
#include "tools/corpus/corpus.h"
#include "tools/corpus/phrases.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

void skip_without_espeak() {
  try {
    run_program("espeak-ng", {"--version"}, 10s, "");
  } catch (const InputError& e) {
    std::printf("skipped: %s\n", e.what());
    std::exit(77);
  }
}

PrepareSpeechDemoOptions small(const std::string& out) {
  PrepareSpeechDemoOptions o;
  o.out = out;
  o.train = 24;
  o.dev = 12;
  o.test = 32;
  o.seed = 3;
  return o;
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> words;
  for (std::string w; in >> w;) words.insert(w);
  return words;
}

// Stands for espeak-ng, which does not always speak a text the same way (1.52): speaks 0.2 s, of
// which the second half is made of what it is told.
std::string fake_program(const TemporaryFolder& folder) {
  Waveform tone{16000, std::vector<float>(3200)};
  for (size_t i = 0; i < tone.samples.size(); ++i) tone.samples[i] = i % 80 < 40 ? 0.5f : -0.5f;
  write_wav(folder.path("tone.wav"), tone);
  const std::string script = folder.write(
      "speak",
      str("#!/bin/sh\nhead -c 3244 '", folder.path("tone.wav"), "'\nprintf %-3200s \"$*\"\n"));
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  return script;
}

TEST_CASE("speech-demo: voices and transcripts keep the rules", "[slow][speech-demo]") {
  const TemporaryFolder folder;
  PrepareSpeechDemoOptions options = small(folder.path("out"));
  options.program = fake_program(folder);
  options.train = 700;
  options.seed = 1;  // with which, unprevented, train has a digit string of test
  options.dev = 32;
  options.test = 160;
  const CorpusReport report = prepare_speech_demo(options);
  REQUIRE(report.splits.size() == 3);
  std::map<std::string, std::set<std::string>> voices, texts, words;
  std::map<std::string, int> test_voices;
  std::set<std::string> unseen;
  std::set<double> snr;
  for (const SplitReport& split : report.splits) {
    const auto entries = split_of(options.out, split.name);
    CHECK(static_cast<int64_t>(entries.size()) == split.utterances);
    for (const ManifestEntry& e : entries) {
      const auto extra = nlohmann::json::parse(e.extra);
      CHECK(extra["voice"] == e.speaker);
      voices[split.name].insert(e.speaker);
      if (split.name == "test") ++test_voices[e.speaker];
      if (!extra["seen"].get<bool>()) unseen.insert(e.speaker);
      texts[split.name].insert(e.text.value());
      words[split.name].merge(words_of(e.text.value()));
      snr.insert(extra["snr_db"].get<double>());
      CHECK((e.duration.value() > 0.4 && e.duration.value() < 1.0));  // with silence around
    }
  }
  CHECK(unseen.size() == 2);
  CHECK(voices["train"].size() == 6);
  CHECK(voices["dev"] == voices["train"]);
  for (const std::string& v : unseen) CHECK(voices["train"].count(v) == 0);
  CHECK(test_voices.size() == 8);
  for (const auto& [voice, n] : test_voices) CHECK(n == 20);
  for (const std::string& t : texts["test"]) {
    CHECK(texts["train"].count(t) == 0);
    CHECK(texts["dev"].count(t) == 0);
  }
  for (const std::string& t : texts["dev"]) CHECK(texts["train"].count(t) == 0);
  CHECK(words["train"].size() > 70);
  CHECK(snr.size() > 100);
  CHECK((*snr.begin() >= 10 && *snr.rbegin() <= 35));
}

TEST_CASE("speech-demo: the recordings hold speech", "[espeak][.]") {
  skip_without_espeak();
  const TemporaryFolder folder;
  prepare_speech_demo(small(folder.path("out")));
  double seconds = 0, words = 0;
  for (const char* split : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : split_of(folder.path("out"), split)) {
      const Waveform audio = SndfileReader().read(e.path, 0);
      CHECK(audio.sample_rate == 16000);
      CHECK(audio.seconds() == Approx(e.duration.value()));
      CHECK((audio.seconds() > 0.6 && audio.seconds() < 5));
      seconds += audio.seconds() - 0.5;  // the silence around
      words += 1 + static_cast<double>(std::count(e.text->begin(), e.text->end(), ' '));
    }
  }
  CHECK(60 * words / seconds > 120);  // words per minute
  CHECK(60 * words / seconds < 220);
}

double mean_square(const float* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum / static_cast<double>(n);
}

// The first 0.1 s are noise alone. Coloured noise that short, and silence counted as speech, leave
// some decibels of uncertainty.
TEST_CASE("speech-demo: the noise is as loud as the manifest says", "[espeak][.]") {
  skip_without_espeak();
  const TemporaryFolder folder;
  prepare_speech_demo(small(folder.path("out")));
  double sum = 0;
  int count = 0;
  for (const ManifestEntry& e : split_of(folder.path("out"), "test")) {
    const std::vector<float> x = SndfileReader().read(e.path, 0).samples;
    const double noise = mean_square(x.data(), 1600);
    const double all = mean_square(x.data(), x.size());
    const double measured = 10 * std::log10((all - noise) / noise);
    const double stated = nlohmann::json::parse(e.extra)["snr_db"].get<double>();
    CHECK(std::fabs(measured - stated) < 7);
    sum += measured - stated;
    ++count;
  }
  CHECK(std::fabs(sum / count) < 3);
}

TEST_CASE("speech-demo: the same seed gives the same bytes, with any number of threads",
          "[speech-demo]") {
  const TemporaryFolder folder;
  PrepareSpeechDemoOptions options = small(folder.path("a"));
  options.program = fake_program(folder);
  options.train = options.test = options.dev = 6;
  options.sample_rate = 8000;
  options.threads = 1;
  prepare_speech_demo(options);
  options.out = folder.path("b");
  options.threads = 3;
  prepare_speech_demo(options);
  const auto a = files_of(folder.path("a"));
  CHECK(a.size() == 18 + 5);
  CHECK(a == files_of(folder.path("b")));
  options.seed = 4;
  prepare_speech_demo(options);
  CHECK(a != files_of(folder.path("b")));
}

TEST_CASE("Every word of the commands is in many of them, and every command is there once",
          "[speech-demo]") {
  const std::vector<std::string> commands = corpus::all_commands();
  CHECK(std::set<std::string>(commands.begin(), commands.end()).size() == commands.size());
  CHECK(commands.size() > 400);
  std::map<std::string, int> uses;
  for (const std::string& c : commands) {
    CHECK(c.find("  ") == std::string::npos);
    CHECK(c.back() != ' ');
    for (const std::string& w : words_of(c)) ++uses[w];
  }
  // A quarter and a tenth of the commands go to test and dev: what is left has every word.
  for (const auto& [word, n] : uses) {
    INFO(word);
    CHECK(n >= 5);
  }
}

void check_refused(const PrepareSpeechDemoOptions& options, const std::string& message) {
  try {
    prepare_speech_demo(options);
    FAIL("not refused: " << message);
  } catch (const InputError& e) {
    CHECK_THAT(e.what(), Contains(message));
  }
}

TEST_CASE("speech-demo: bad options and programs are named, nothing is left", "[speech-demo]") {
  const TemporaryFolder folder;
  PrepareSpeechDemoOptions options = small(folder.path("out"));
  SECTION("espeak-ng is not there") {
    options.program = "rondo-no-such-program";
    check_refused(options, "rondo-no-such-program: cannot be run");
    check_refused(options, "install the Debian package espeak-ng");
  }
  SECTION("it fails") {
    options.program = "false";
    check_refused(options, "false: could not speak '");
    check_refused(options, "(exit status 1)");
  }
  SECTION("it says nothing") {
    options.program = "true";
    check_refused(options, "true: could not speak '");
  }
  SECTION("it does not speak WAV") {
    options.program = "echo";
    check_refused(options, "echo's output: is not audio");
  }
  SECTION("numbers") {
    options.sample_rate = 11025;
    check_refused(options, "sample_rate is 11025, expected 8000 or 16000");
    options = small(folder.path("out"));
    options.train = 0;
    check_refused(options, "train is 0");
    options = small(folder.path("out"));
    options.test = 1'000'000;
    check_refused(options, "1000000 utterances in one split");
  }
  CHECK(names_in(folder.path("")).empty());
}

TEST_CASE("run_program: output, status, arguments without a shell", "[run_program]") {
  const ProgramOutput quiet = run_program("printf", {"%s|", "$HOME", "a b"}, 10s, "");
  CHECK(quiet.out == "$HOME|a b|");
  CHECK(quiet.status == 0);
  const ProgramOutput both = run_program(
      "sh", {"-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3"}, 30s, "");
  CHECK(both.out.size() == 300000);
  CHECK(both.err.size() == 200000);
  CHECK(both.status == 3);
  CHECK(run_program("sh", {"-c", "kill -9 $$"}, 10s, "").status == 128 + 9);
}

TEST_CASE("run_program: a program that does not end is killed", "[run_program]") {
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(run_program("sleep", {"30"}, 50ms, ""), "sleep: was not done after 0.05 s");
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

}  // namespace
}  // namespace rondo
