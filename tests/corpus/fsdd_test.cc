#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/data/audio/audio.h"
#include "engine/data/features/random.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/corpus/corpus_files.h"
#include "tests/data/temporary_folder.h"
#include "tools/corpus/corpus.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

constexpr int takes = 50;

// Recordings that can be told apart by their samples: far above any gap, positive for anna,
// negative for ben, the rest says digit and take; the length depends on both too.
int sample_of(bool anna, int digit, int take) {
  const int level = 1000 + (digit * takes + take) * 40;
  return anna ? level : -level;
}
size_t length_of(int digit, int take) { return static_cast<size_t>(600 + 10 * digit + take); }

void write_recording(const std::string& folder, const std::string& speaker, int digit, int take) {
  Waveform audio{8000, std::vector<float>(length_of(digit, take))};
  for (float& v : audio.samples) {
    v = static_cast<float>(sample_of(speaker == "anna", digit, take)) / 32768.0f;
  }
  write_wav(str(folder, "/", digit, "_", speaker, "_", take, ".wav"), audio);
}

// Made once: 1,000 small files.
const std::string& recordings() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    for (const char* speaker : {"anna", "ben"}) {
      for (int d = 0; d < 10; ++d) {
        for (int t = 0; t < takes; ++t) write_recording(folder.path(""), speaker, d, t);
      }
    }
    return folder.path("");
  }();
  return path;
}

PrepareFsddOptions small(const std::string& out) {
  PrepareFsddOptions o;
  o.recordings = recordings();
  o.out = out;
  o.train = 60;
  o.dev = 12;
  o.test = 16;
  o.seed = 7;
  return o;
}

struct Found {
  std::vector<int> digits, takes, gaps;
  std::set<std::string> speakers;
};

// Reads a string back from its samples.
Found decode(const ManifestEntry& entry) {
  const Waveform audio = SndfileReader().read(entry.path, 0);
  REQUIRE(audio.sample_rate == 8000);
  CHECK(entry.duration.value() == Approx(audio.seconds()).epsilon(1e-12));
  const auto value = [&](size_t i) { return std::lround(audio.samples[i] * 32768.0f); };
  Found found;
  size_t i = 0;
  for (;;) {
    int gap = 0;
    bool silent = true;
    for (; i < audio.samples.size() && std::labs(value(i)) < 1000; ++i, ++gap) {
      CHECK(std::labs(value(i)) <= 128);
      silent = silent && value(i) == 0;
    }
    CHECK(!silent);
    found.gaps.push_back(gap);
    if (i == audio.samples.size()) return found;
    const long v = value(i);
    const int id = static_cast<int>((std::labs(v) - 1000) / 40);
    found.speakers.insert(v > 0 ? "anna" : "ben");
    found.digits.push_back(id / takes);
    found.takes.push_back(id % takes);
    const size_t end = i + length_of(id / takes, id % takes);
    REQUIRE(end <= audio.samples.size());
    for (; i < end; ++i) REQUIRE(value(i) == v);
  }
}

std::string text_of(const std::vector<int>& digits) {
  std::string text;
  for (int d : digits) text += str(text.empty() ? "" : " ", d);
  return text;
}

TEST_CASE("fsdd: every string is whole recordings of one speaker with gaps", "[slow][fsdd]") {
  const TemporaryFolder folder;
  const CorpusReport report = prepare_fsdd(small(folder.path("out")));
  CHECK(names_in(folder.path("out")) == std::vector<std::string>{"corpus.json", "dev.jsonl",
                                                                 "test.jsonl", "train.jsonl",
                                                                 "train.toml", "wav"});
  REQUIRE(report.splits.size() == 3);
  std::set<size_t> lengths;
  std::set<int> gaps;
  for (const SplitReport& split : report.splits) {
    const auto entries = split_of(folder.path("out"), split.name);
    CHECK(static_cast<int64_t>(entries.size()) == split.utterances);
    double seconds = 0;
    for (const ManifestEntry& entry : entries) {
      const Found found = decode(entry);
      seconds += entry.duration.value();
      CHECK(found.speakers == std::set<std::string>{entry.speaker});
      CHECK(entry.text == text_of(found.digits));
      CHECK(nlohmann::json::parse(entry.extra)["takes"] == found.takes);
      CHECK(found.gaps.size() == found.digits.size() + 1);
      for (int gap : found.gaps) CHECK((gap >= 400 && gap <= 2400));
      gaps.insert(found.gaps.begin(), found.gaps.end());
      lengths.insert(found.digits.size());
    }
    CHECK(seconds == Approx(split.seconds));
  }
  CHECK(lengths == std::set<size_t>{3, 4, 5, 6, 7});
  CHECK(gaps.size() > 100);  // random
}

// Uses of (speaker, digit, take) in a split.
std::map<std::string, int> uses(const std::string& out, const std::string& split) {
  std::map<std::string, int> count;
  for (const ManifestEntry& entry : split_of(out, split)) {
    const Found found = decode(entry);
    for (size_t i = 0; i < found.digits.size(); ++i) {
      ++count[str(entry.speaker, " ", found.digits[i], " ", found.takes[i])];
    }
  }
  return count;
}

int take_in(const std::string& use) { return std::stoi(use.substr(use.rfind(' ') + 1)); }

TEST_CASE("fsdd: the splits share no take", "[slow][fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("out"));
  SECTION("with a dev split") {
    prepare_fsdd(options);
    for (const auto& [use, n] : uses(options.out, "train")) {
      CHECK((take_in(use) >= 5 && take_in(use) < 45));
    }
    for (const auto& [use, n] : uses(options.out, "dev")) CHECK(take_in(use) >= 45);
  }
  SECTION("without, the last takes are for training") {
    options.dev = 0;
    options.train = 300;
    prepare_fsdd(options);
    CHECK(!fs::exists(options.out + "/dev.jsonl"));
    std::set<int> seen;
    for (const auto& [use, n] : uses(options.out, "train")) seen.insert(take_in(use));
    CHECK(*seen.begin() == 5);
    CHECK(*seen.rbegin() == 49);
    CHECK(seen.size() == 45);
  }
  for (const auto& [use, n] : uses(options.out, "test")) CHECK(take_in(use) < 5);
}

TEST_CASE("fsdd: recordings are used equally often", "[fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("out"));
  options.test = 120;
  prepare_fsdd(options);
  const auto count = uses(options.out, "test");
  CHECK(count.size() == 100);  // 2 speakers x 10 digits x 5 takes, all of them
  std::map<std::string, std::pair<int, int>> range;  // of the takes of one digit and speaker
  for (const auto& [use, n] : count) {
    auto& r = range.try_emplace(use.substr(0, use.rfind(' ')), n, n).first->second;
    r = {std::min(r.first, n), std::max(r.second, n)};
  }
  for (const auto& [key, r] : range) CHECK(r.second - r.first <= 1);
}

TEST_CASE("fsdd: a speaker held out is in test only, the others never", "[fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("out"));
  options.hold_out = "ben";
  prepare_fsdd(options);
  for (const char* split : {"train", "dev"}) {
    for (const ManifestEntry& e : split_of(options.out, split)) CHECK(e.speaker == "anna");
  }
  for (const ManifestEntry& e : split_of(options.out, "test")) CHECK(e.speaker == "ben");
  for (const auto& [use, n] : uses(options.out, "test")) CHECK(take_in(use) < 5);
}

TEST_CASE("fsdd: the same seed gives the same bytes, on every machine", "[slow][fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("a"));
  prepare_fsdd(options);
  options.out = folder.path("b");
  prepare_fsdd(options);
  const auto a = files_of(folder.path("a"));
  CHECK(a == files_of(folder.path("b")));
  options.seed = 8;
  prepare_fsdd(options);
  CHECK(a != files_of(folder.path("b")));

  // Found once; changes only if the making of the corpus does. Samples alone, because WAV headers
  // are the library's.
  uint64_t digest = 0;
  for (const char* split : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : split_of(folder.path("a"), split)) {
      const Waveform audio = SndfileReader().read(e.path, 0);
      for (float v : audio.samples) {
        digest = data::combine64(digest, static_cast<uint64_t>(std::lround(v * 32768.0f) + 32768));
      }
      digest = data::combine64(digest, data::hash_name(to_json_line(e)));
    }
  }
  CHECK(digest == 0x3ee2ade64b418525u);
}

TEST_CASE("fsdd: progress counts to the end", "[fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("out"));
  std::vector<int64_t> seen;
  options.progress = [&](int64_t done, int64_t total) {
    CHECK(total == 88);
    seen.push_back(done);
  };
  prepare_fsdd(options);
  REQUIRE(seen.size() == 88);
  CHECK(seen.back() == 88);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
}

void check_refused(const PrepareFsddOptions& options, const std::string& message) {
  try {
    prepare_fsdd(options);
    FAIL("not refused: " << message);
  } catch (const InputError& e) {
    CHECK_THAT(e.what(), Contains(message));
  }
}

TEST_CASE("fsdd: bad recordings are named and nothing is left behind", "[fsdd]") {
  const TemporaryFolder folder;
  fs::create_directory(folder.path("in"));
  for (const auto& file : fs::directory_iterator(recordings())) {
    fs::create_symlink(file.path(), fs::path(folder.path("in")) / file.path().filename());
  }
  PrepareFsddOptions options = small(folder.path("out"));
  options.recordings = folder.path("in");
  options.train = 300;  // every recording is used
  const std::string victim = folder.path("in/3_ben_17.wav");
  SECTION("missing") {
    fs::remove(victim);
    fs::remove(folder.path("in/9_ben_0.wav"));
    check_refused(options, "in: 2 recordings are missing, the first is 3_ben_17.wav");
  }
  SECTION("too short") {
    fs::remove(victim);
    write_wav(victim, Waveform{8000, std::vector<float>(399, 0.5f)});
    check_refused(options, "3_ben_17.wav: lasts 0.049875 s, too short");
  }
  SECTION("another sample rate") {
    fs::remove(victim);
    write_wav(victim, Waveform{16000, std::vector<float>(4000, 0.5f)});
    check_refused(options, "3_ben_17.wav: has a sample rate of 16000 Hz, expected 8000");
  }
  SECTION("no audio") {
    fs::remove(victim);
    std::ofstream(victim) << "not a recording";
    check_refused(options, "3_ben_17.wav: is not audio");
  }
  SECTION("empty") {
    fs::remove(victim);
    std::ofstream{victim};
    check_refused(options, "3_ben_17.wav: is empty");
  }
  SECTION("a name that says nothing") {
    write_wav(folder.path("in/three_ben_17.wav"), Waveform{8000, std::vector<float>(800, 0.5f)});
    check_refused(options, "three_ben_17.wav: expected a name like");
  }
  CHECK(names_in(folder.path("")) == std::vector<std::string>{"in"});
}

TEST_CASE("fsdd: bad options are named", "[fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("out"));
  SECTION("no folder") {
    options.recordings = folder.path("nowhere");
    check_refused(options, "nowhere: cannot be read as a folder");
  }
  SECTION("an empty folder") {
    fs::create_directory(folder.path("empty"));
    options.recordings = folder.path("empty");
    check_refused(options, "empty: holds no recordings");
    fs::remove(folder.path("empty"));
  }
  SECTION("an unknown speaker") {
    options.hold_out = "theo";
    check_refused(options, "no speaker 'theo' to hold out, expected one of anna, ben");
  }
  SECTION("numbers") {
    options.train = 0;
    check_refused(options, "train is 0");
    options = small(folder.path("out"));
    options.dev = -1;
    check_refused(options, "dev is -1");
    options = small(folder.path("out"));
    options.test = 0;
    check_refused(options, "test is 0");
  }
  SECTION("no name") {
    options.out = "";
    check_refused(options, "has no name");
  }
  CHECK(names_in(folder.path("")).empty());
}

TEST_CASE("fsdd: what is not an earlier corpus is never overwritten", "[fsdd]") {
  const TemporaryFolder folder;
  PrepareFsddOptions options = small(folder.path("out"));
  SECTION("an empty folder is used") {
    fs::create_directory(options.out);
    prepare_fsdd(options);
    CHECK(split_of(options.out, "train").size() == 60);
  }
  SECTION("a folder with something else is refused") {
    fs::create_directory(options.out);
    std::ofstream(options.out + "/thesis.txt") << "three years of work";
    check_refused(options, "out: is not empty and holds no corpus");
    CHECK(names_in(options.out) == std::vector<std::string>{"thesis.txt"});
  }
  SECTION("a corpus of another kind is refused") {
    fs::create_directory(options.out);
    std::ofstream(options.out + "/corpus.json") << R"({"kind": "speech-demo"})";
    check_refused(options, "holds a corpus of the kind 'speech-demo'");
  }
  SECTION("a damaged description is no corpus") {
    fs::create_directory(options.out);
    std::ofstream(options.out + "/corpus.json") << R"({"kind": )";
    check_refused(options, "holds no corpus");
  }
  SECTION("a file is refused") {
    std::ofstream(options.out) << "text";
    check_refused(options, "out: is not a folder");
  }
  SECTION("an earlier corpus is replaced") {
    prepare_fsdd(options);
    options.train = 20;
    options.hold_out = "anna";
    prepare_fsdd(options);
    CHECK(split_of(options.out, "train").size() == 20);
    CHECK(names_in(options.out + "/wav").size() == 48);
  }
  SECTION("but not with something added to it") {
    prepare_fsdd(options);
    std::ofstream(options.out + "/notes.txt") << "listen to 17";
    check_refused(options, "out: holds 'notes.txt', which is no part of the corpus");
    CHECK(split_of(options.out, "train").size() == 60);
  }
  SECTION("nor when the recordings are in it") {
    prepare_fsdd(options);
    fs::remove_all(options.out + "/wav");
    fs::copy(options.recordings, options.out + "/wav");
    options.recordings = options.out + "/wav/../wav";
    const auto before = files_of(options.out);
    check_refused(options, "out: holds the recordings to read");
    CHECK(files_of(options.out) == before);
  }
  SECTION("an earlier corpus survives a failure") {
    prepare_fsdd(options);
    const auto before = files_of(options.out);
    options.progress = [](int64_t done, int64_t) {
      if (done == 30) throw Error("interrupted");
    };
    CHECK_THROWS_WITH(prepare_fsdd(options), "interrupted");
    CHECK(files_of(options.out) == before);
  }
  CHECK(names_in(folder.path("")) == std::vector<std::string>{"out"});
}

TEST_CASE("fsdd: the real recordings", "[fsdd-real][.]") {
  const char* shared = std::getenv("RONDO_SHARED");
  const fs::path folder_of_data = fs::path(shared != nullptr ? shared : RONDO_DEFAULT_SHARED);
  if (!fs::exists(folder_of_data / "data/fsdd")) {
    std::printf("skipped: %s does not hold data/fsdd\n", folder_of_data.c_str());
    std::exit(77);
  }
  const TemporaryFolder folder;
  PrepareFsddOptions options;
  options.recordings = (folder_of_data / "data/fsdd").string();
  options.out = folder.path("out");
  prepare_fsdd(options);
  std::map<std::string, std::vector<float>> originals;
  std::map<std::string, int> speakers;
  size_t count = 0;
  for (const char* split : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : split_of(options.out, split)) {
      ++speakers[e.speaker];
      if (++count % 25 != 0) continue;
      // The recordings the manifest names are in it, in order, to the bit.
      const std::vector<float> samples = SndfileReader().read(e.path, 0).samples;
      const auto used = nlohmann::json::parse(e.extra)["takes"].get<std::vector<int>>();
      auto at = samples.begin();
      for (size_t i = 0; i < used.size(); ++i) {
        const std::string name = str(e.text.value()[2 * i], "_", e.speaker, "_", used[i], ".wav");
        const auto [it, is_new] = originals.try_emplace(name);
        if (is_new) it->second = SndfileReader().read(options.recordings + "/" + name, 0).samples;
        at = std::search(at, samples.end(), it->second.begin(), it->second.end());
        REQUIRE(at != samples.end());
        at += static_cast<int64_t>(it->second.size());
      }
    }
  }
  CHECK(count == 2500);
  CHECK(speakers.size() == 5);
  for (const auto& [speaker, n] : speakers) CHECK(n == 500);
}

}  // namespace
}  // namespace rondo
