#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <set>
#include <span>

#include "engine/data/audio/audio.h"
#include "engine/data/features/random.h"
#include "engine/data/features/run_program.h"
#include "engine/io/json.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/corpus/corpus.h"
#include "tools/corpus/corpus_folder.h"
#include "tools/corpus/phrases.h"

namespace rondo {
namespace {

using corpus::CorpusFolder;
using corpus::Split;
using data::Purpose;
using data::Random;

struct Voice {
  const char* name;  // accent+variant, as espeak-ng spells it
  bool seen;
};
constexpr std::array voices = {Voice{"en-us+m3", true},       Voice{"en-us+f3", true},
                               Voice{"en-gb+m1", true},       Voice{"en-gb+f2", true},
                               Voice{"en-gb-scotland", true}, Voice{"en-029+f4", true},
                               Voice{"en-us-nyc+f1", false},  Voice{"en-gb-x-rp+m7", false}};
constexpr size_t seen_voices = 6;  // they come first

struct Utterance {
  std::string path, text;
  Voice voice;
  Random random;  // for how it is spoken and recorded
};

class UtteranceMaker {
 public:
  explicit UtteranceMaker(uint64_t seed) : seed_(seed), commands_(corpus::all_commands()) {
    Random random = this->random("commands");
    corpus::shuffle(commands_, random);
  }

  // Half digit strings, half commands. Transcripts do not occur in splits made before.
  // `command_share` of all commands belong to this split alone, at least one.
  std::vector<Utterance> make(const std::string& split, int64_t count, double command_share,
                              size_t voice_count) {
    const auto share = static_cast<size_t>(command_share * static_cast<double>(commands_.size()));
    const size_t left = commands_.size() - next_command_;
    const std::span<const std::string> own(commands_.data() + next_command_,
                                           std::clamp<size_t>(share, 1, left));
    next_command_ += own.size();
    std::vector<Utterance> utterances;
    std::set<std::string> used;
    for (int64_t i = 0; i < count; ++i) {
      Random random = this->random(str(split, " ", i));
      // Voices take turns, in pairs: one digit string and one command each.
      const Voice voice = voices[static_cast<size_t>(i / 2) % voice_count];
      const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(own.size())));
      std::string text = i % 2 == 0 ? new_digits(random) : own[at];
      used.insert(text);
      char path[64];
      std::snprintf(path, sizeof path, "wav/%s_%05lld.wav", split.c_str(),
                    static_cast<long long>(i));
      utterances.push_back({path, std::move(text), voice, random});
    }
    taken_.merge(used);
    return utterances;
  }

 private:
  Random random(const std::string& what) const {
    return Random(seed_, 0, data::hash_name("speech-demo " + what), Purpose::order);
  }

  std::string new_digits(Random& random) const {
    for (;;) {
      std::string text = corpus::digit_words(static_cast<int>(3 + random.below(4)), random);
      if (!taken_.contains(text)) return text;
    }
  }

  const uint64_t seed_;
  std::vector<std::string> commands_;
  size_t next_command_ = 0;
  std::set<std::string> taken_;  // by splits made before
};

std::vector<float> speak(const PrepareSpeechDemoOptions& options, Utterance& u) {
  using std::chrono::seconds;
  const int64_t words_per_minute = 140 + u.random.below(51);
  const int64_t pitch = 30 + u.random.below(41);
  const ProgramOutput output = run_program(
      options.program,
      {"-v", u.voice.name, "-s", std::to_string(words_per_minute), "-p", std::to_string(pitch),
       "-z", "--stdout", u.text},
      seconds(60), "; install the Debian package espeak-ng (apt-get install espeak-ng)");
  if (output.status != 0 || output.out.empty()) {
    fail_input(options.program, ": could not speak '", u.text, "' with the voice ", u.voice.name,
               " (exit status ", output.status, "): ", output.err.substr(0, output.err.find('\n')));
  }
  return decode_audio(std::as_bytes(std::span(output.out)), options.program + "'s output",
                      options.sample_rate)
      .samples;
}

double mean_square(std::span<const float> x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return x.empty() ? 0 : sum / static_cast<double>(x.size());
}

// White noise through a one-pole low-pass: from hiss to rumble.
std::vector<float> noise(size_t n, Random& random) {
  const auto pole = static_cast<float>(random.uniform(0, 0.95));
  std::vector<float> x(n);
  float y = 0;
  for (float& v : x) {
    // The sum of four uniform numbers is close enough to a normal one.
    const uint64_t bits = random.next();
    int32_t sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<int16_t>(bits >> (16 * part) & 0xffff);
    y = pole * y + static_cast<float>(sum) / 65536.0f;
    v = y;
  }
  return x;
}

struct Recording {
  Waveform audio;
  double snr_db = 0;
};

// Silence around, noise over everything, some level.
Recording record(const std::vector<float>& speech, int32_t sample_rate, Random& random) {
  const auto pause = [&] { return static_cast<size_t>(random.uniform(0.1, 0.4) * sample_rate); };
  const size_t before = pause(), after = pause();
  Recording out;
  out.snr_db = std::round(random.uniform(10, 35) * 10) / 10;
  out.audio.sample_rate = sample_rate;
  std::vector<float>& mix = out.audio.samples;
  mix = noise(before + speech.size() + after, random);
  const double wanted = mean_square(speech) / std::pow(10.0, out.snr_db / 10);
  const auto scale = static_cast<float>(std::sqrt(wanted / mean_square(mix)));
  float peak = 0;
  for (size_t i = 0; i < mix.size(); ++i) {
    mix[i] *= scale;
    if (i >= before && i < before + speech.size()) mix[i] += speech[i - before];
    peak = std::max(peak, std::fabs(mix[i]));
  }
  const auto level = static_cast<float>(random.uniform(0.2, 0.9));
  for (float& v : mix) v *= level / peak;
  return out;
}

ManifestEntry make(const PrepareSpeechDemoOptions& options, const CorpusFolder& folder,
                   Utterance& u) {
  const std::vector<float> speech = speak(options, u);
  if (!(mean_square(speech) > 0)) {
    fail_input(options.program, ": said nothing for '", u.text, "' with the voice ", u.voice.name);
  }
  const Recording recording = record(speech, options.sample_rate, u.random);
  write_wav(folder.path_of(u.path), recording.audio);
  ManifestEntry entry;
  entry.path_as_written = u.path;
  entry.duration = recording.audio.seconds();
  entry.text = u.text;
  entry.speaker = u.voice.name;
  entry.extra =
      Json::object({{"seen", u.voice.seen}, {"snr_db", recording.snr_db}, {"voice", u.voice.name}})
          .dump();
  return entry;
}

void check_options(const PrepareSpeechDemoOptions& o) {
  if (o.train < 1) fail_input("train is ", o.train, ", expected at least 1 utterance");
  if (o.test < 1) fail_input("test is ", o.test, ", expected at least 1 utterance");
  if (o.dev < 0) fail_input("dev is ", o.dev, ", expected at least 0 utterances");
  // There are 1,111,000 digit strings; half of a split are digit strings.
  constexpr int64_t most = 200'000;
  for (int64_t n : {o.train, o.dev, o.test}) {
    if (n > most) fail_input(n, " utterances in one split, expected at most ", most);
  }
  if (o.sample_rate != 8000 && o.sample_rate != 16000) {
    fail_input("sample_rate is ", o.sample_rate, ", expected 8000 or 16000");
  }
}

}  // namespace

CorpusReport prepare_speech_demo(const PrepareSpeechDemoOptions& options) {
  check_options(options);
  UtteranceMaker maker(options.seed);
  // What is made first is kept out of the rest.
  std::vector<Utterance> test = maker.make("test", options.test, 0.25, voices.size());
  std::vector<Utterance> dev = maker.make("dev", options.dev, 0.1, seen_voices);
  std::vector<Utterance> train = maker.make("train", options.train, 1.0, seen_voices);

  CorpusFolder folder(options.out, "speech-demo", "", options.overwrite);
  folder.make_folder("wav");
  const int64_t total = options.train + options.dev + options.test;
  int64_t done = 0;
  std::mutex mutex;
  ThreadPool pool(cpu_threads(options.threads, "--threads"));
  const auto make_all = [&](const char* name, std::vector<Utterance>& utterances) {
    Split split{name, std::vector<ManifestEntry>(utterances.size())};
    pool.for_each(static_cast<int64_t>(utterances.size()), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      split.entries[at] = make(options, folder, utterances[at]);
      std::lock_guard lock(mutex);
      if (options.progress) options.progress(++done, total);
    });
    return split;
  };
  std::vector<Split> splits;
  splits.push_back(make_all("train", train));
  splits.push_back(make_all("dev", dev));
  splits.push_back(make_all("test", test));
  folder.write_settings(splits.front(), options.sample_rate);
  const Json description = Json::object({{"dev", options.dev},
                                         {"sample_rate", options.sample_rate},
                                         {"seed", options.seed},
                                         {"test", options.test},
                                         {"train", options.train}});
  return folder.commit(splits, description.dump());
}

}  // namespace rondo
