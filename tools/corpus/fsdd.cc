#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "engine/data/audio/audio.h"
#include "engine/data/features/endings.h"
#include "engine/data/features/random.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"
#include "tools/corpus/corpus.h"
#include "tools/corpus/corpus_folder.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using corpus::CorpusFolder;
using corpus::Split;
using data::Purpose;
using data::Random;

constexpr int32_t rate = 8000;
constexpr int digits = 10;
constexpr int takes = 50;
constexpr int test_takes = 5;  // the official split: takes 0-4
constexpr int dev_takes = 5;
constexpr int shortest = 3, longest = 7;  // digits in a string

struct TakeRange {
  int begin, end;
};

struct RecordingName {
  int digit, take;
  std::string speaker;
};

std::string file_name(int digit, const std::string& speaker, int take) {
  return str(digit, "_", speaker, "_", take, ".wav");
}

std::optional<RecordingName> parse_name(const std::string& name) {
  const size_t first = name.find('_'), last = name.rfind('_');
  if (first != 1 || last <= first + 1 || last == std::string::npos) return std::nullopt;
  RecordingName r{name[0] - '0', -1, name.substr(first + 1, last - first - 1)};
  std::from_chars(name.data() + last + 1, name.data() + name.size(), r.take);
  if (r.digit < 0 || r.digit > 9 || file_name(r.digit, r.speaker, r.take) != name) {
    return std::nullopt;
  }
  return r;
}

// The recordings of a folder, read when first wanted.
class Recordings {
 public:
  explicit Recordings(const std::string& given) : folder_(given) {
    std::error_code error;
    if (fs::is_directory(folder_ / "recordings", error)) folder_ /= "recordings";
    fs::directory_iterator files(folder_, error);
    if (error) fail_input(given, ": cannot be read as a folder: ", error.message());
    for (const auto& file : files) {
      if (!has_ending(file.path().string(), ".wav")) continue;
      const auto name = parse_name(file.path().filename().string());
      if (!name) {
        fail_input(file.path().string(), ": expected a name like 7_theo_31.wav");
      }
      ++found_[name->speaker];
    }
    if (found_.empty()) {
      fail_input(folder_.string(), ": holds no recordings, expected files like 7_theo_31.wav");
    }
    check_complete();
  }

  std::vector<std::string> speakers() const {
    std::vector<std::string> names;
    for (const auto& [speaker, count] : found_) names.push_back(speaker);
    return names;
  }

  const std::vector<float>& get(int digit, const std::string& speaker, int take) {
    const std::string name = file_name(digit, speaker, take);
    const auto [entry, is_new] = samples_.try_emplace(name);
    if (is_new) entry->second = read((folder_ / name).string());
    return entry->second;
  }

 private:
  void check_complete() const {
    int64_t missing = 0;
    std::string first;
    for (const auto& [speaker, count] : found_) {
      for (int d = 0; d < digits; ++d) {
        for (int t = 0; t < takes; ++t) {
          const fs::path path = folder_ / file_name(d, speaker, t);
          if (fs::exists(path)) continue;
          if (missing++ == 0) first = path.filename().string();
        }
      }
    }
    if (missing > 0) {
      fail_input(folder_.string(), ": ", missing, " recordings are missing, the first is ", first,
                 "; expected takes 0-", takes - 1, " of every digit and speaker");
    }
  }

  static std::vector<float> read(const std::string& path) {
    constexpr double least = 0.05;
    Waveform audio = SndfileReader().read(path, 0);
    if (audio.sample_rate != rate) {
      fail_input(path, ": has a sample rate of ", audio.sample_rate, " Hz, expected ", rate);
    }
    if (audio.seconds() < least) {
      fail_input(path, ": lasts ", audio.seconds(), " s, too short for a digit (expected ", least,
                 " s at least)");
    }
    return std::move(audio.samples);
  }

  fs::path folder_;
  std::map<std::string, int> found_;
  std::map<std::string, std::vector<float>> samples_;
};

// Cards that come in random order and, over time, equally often.
class Deck {
 public:
  Deck(std::vector<int> cards, Random random) : cards_(std::move(cards)), random_(random) {}

  int draw() {
    if (next_ == 0) {
      corpus::shuffle(cards_, random_);
      next_ = cards_.size();
    }
    return cards_[--next_];
  }

 private:
  std::vector<int> cards_;
  Random random_;
  size_t next_ = 0;
};

// The level of background noise in a recording, in steps of 16-bit samples: the mean magnitude of
// its quietest 10 ms.
int64_t noise_level(const std::vector<float>& samples) {
  constexpr size_t window = rate / 100;
  double quietest = 1;
  for (size_t i = 0; i + window <= samples.size(); i += window) {
    double sum = 0;
    for (size_t k = 0; k < window; ++k) sum += std::fabs(static_cast<double>(samples[i + k]));
    quietest = std::min(quietest, sum / window);
  }
  return std::clamp<int64_t>(static_cast<int64_t>(quietest * 32768), 1, 64);
}

struct DigitString {
  std::vector<int> digits, takes;
  Waveform audio;
};

class StringMaker {
 public:
  StringMaker(Recordings& recordings, const std::string& split, std::vector<std::string> speakers,
              TakeRange range, uint64_t seed)
      : recordings_(recordings), split_(split), speakers_(std::move(speakers)), seed_(seed) {
    std::vector<int> some_takes;
    for (int t = range.begin; t < range.end; ++t) some_takes.push_back(t);
    // Several of each, so that a digit may follow itself.
    std::vector<int> some_digits;
    for (int copy = 0; copy < 4; ++copy) {
      for (int d = 0; d < digits; ++d) some_digits.push_back(d);
    }
    for (const std::string& speaker : speakers_) {
      digit_decks_.emplace_back(some_digits, random(str("digits of ", speaker)));
      for (int d = 0; d < digits; ++d) {
        take_decks_.emplace_back(some_takes, random(str("takes of ", d, " by ", speaker)));
      }
    }
  }

  const std::string& speaker_of(int64_t index) const {
    return speakers_[static_cast<size_t>(index) % speakers_.size()];
  }

  // To be called with 0, 1, 2, ...
  DigitString make(int64_t index) {
    const size_t s = static_cast<size_t>(index) % speakers_.size();
    Random r = random(str("string ", index));
    const auto length = shortest + r.below(longest - shortest + 1);
    DigitString out;
    out.audio.sample_rate = rate;
    int64_t level = 0;
    for (int64_t i = 0; i < length; ++i) {
      const int digit = digit_decks_[s].draw();
      const int take = take_decks_[s * digits + static_cast<size_t>(digit)].draw();
      const std::vector<float>& samples = recordings_.get(digit, speakers_[s], take);
      out.digits.push_back(digit);
      out.takes.push_back(take);
      const int64_t own = noise_level(samples);
      append_gap(out.audio.samples, level == 0 ? own : std::min(level, own), r);
      out.audio.samples.insert(out.audio.samples.end(), samples.begin(), samples.end());
      level = own;
    }
    append_gap(out.audio.samples, level, r);
    return out;
  }

 private:
  Random random(const std::string& what) const {
    return Random(seed_, 0, data::hash_name(str("fsdd ", split_, " ", what)), Purpose::order);
  }

  // Faint noise rather than zeros: digital silence would mark every boundary.
  static void append_gap(std::vector<float>& to, int64_t level, Random& r) {
    constexpr int64_t least = rate / 20, most = rate * 3 / 10;
    const int64_t length = least + r.below(most - least + 1);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t value = r.below(4 * level + 1) - 2 * level;  // mean magnitude: level
      to.push_back(static_cast<float>(value) / 32768.0f);
    }
  }

  Recordings& recordings_;
  const std::string split_;
  const std::vector<std::string> speakers_;
  const uint64_t seed_;
  std::vector<Deck> digit_decks_;  // by speaker
  std::vector<Deck> take_decks_;   // by speaker and digit
};

void check_options(const PrepareFsddOptions& o, const std::vector<std::string>& speakers) {
  if (o.train < 1) fail_input("train is ", o.train, ", expected at least 1 string");
  if (o.test < 1) fail_input("test is ", o.test, ", expected at least 1 string");
  if (o.dev < 0) fail_input("dev is ", o.dev, ", expected at least 0 strings");
  if (o.hold_out.empty()) return;
  std::string names;
  for (const std::string& s : speakers) names += str(names.empty() ? "" : ", ", s);
  if (std::find(speakers.begin(), speakers.end(), o.hold_out) == speakers.end()) {
    fail_input("there is no speaker '", o.hold_out, "' to hold out, expected one of ", names);
  }
  if (speakers.size() == 1) {
    fail_input("'", o.hold_out, "' is the only speaker: holding it out leaves nothing to train on");
  }
}

std::string numerals(const std::vector<int>& values) {
  std::string text;
  for (int v : values) text += str(text.empty() ? "" : " ", v);
  return text;
}

}  // namespace

CorpusReport prepare_fsdd(const PrepareFsddOptions& options) {
  Recordings recordings(options.recordings);
  const std::vector<std::string> everybody = recordings.speakers();
  check_options(options, everybody);
  std::vector<std::string> trained = everybody, tested = everybody;
  if (!options.hold_out.empty()) {
    std::erase(trained, options.hold_out);
    tested = {options.hold_out};
  }
  const int dev_begin = options.dev > 0 ? takes - dev_takes : takes;
  struct Request {
    const char* name;
    int64_t strings;
    const std::vector<std::string>& speakers;
    TakeRange range;
  };
  const Request requests[] = {{"train", options.train, trained, {test_takes, dev_begin}},
                              {"dev", options.dev, trained, {dev_begin, takes}},
                              {"test", options.test, tested, {0, test_takes}}};

  CorpusFolder folder(options.out, "fsdd", options.recordings, options.overwrite);
  folder.make_folder("wav");
  std::vector<Split> splits;
  int64_t done = 0;
  const int64_t total = options.train + options.dev + options.test;
  for (const Request& request : requests) {
    Split& split = splits.emplace_back(Split{request.name, {}});
    if (request.strings == 0) continue;
    StringMaker maker(recordings, request.name, request.speakers, request.range, options.seed);
    for (int64_t i = 0; i < request.strings; ++i) {
      const DigitString string = maker.make(i);
      char name[64];
      std::snprintf(name, sizeof name, "wav/%s_%05lld_", request.name, static_cast<long long>(i));
      ManifestEntry entry;
      entry.path_as_written = name + maker.speaker_of(i) + ".wav";
      entry.duration = string.audio.seconds();
      entry.text = numerals(string.digits);
      entry.speaker = maker.speaker_of(i);
      entry.extra = Json::object({{"takes", string.takes}}).dump();
      write_wav(folder.path_of(entry.path_as_written), string.audio);
      split.entries.push_back(std::move(entry));
      if (options.progress) options.progress(++done, total);
    }
  }
  folder.write_settings(splits.front(), rate);
  const Json description = Json::object({{"dev", options.dev},
                                         {"hold_out", options.hold_out},
                                         {"seed", options.seed},
                                         {"test", options.test},
                                         {"train", options.train}});
  return folder.commit(splits, description.dump());
}

}  // namespace rondo
