#include "engine/train/model/open_data.h"

#include <algorithm>
#include <set>

#include "engine/data/length_cache.h"
#include "engine/data/manifest_field.h"
#include "engine/io/json.h"
#include "engine/text/marks.h"
#include "engine/text/unicode.h"
#include "engine/train/model/build_model.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"

namespace rondo {

InputKind input_kind(FeatureType type) {
  if (type == FeatureType::ready) return InputKind::features;
  return type == FeatureType::image ? InputKind::image : InputKind::recording;
}

CmvnMode cmvn_mode_of(const FeaturesConfig& features) {
  switch (features.cmvn) {
    case Cmvn::none:
      return CmvnMode::none;
    case Cmvn::utterance:
      // A row of pixels means little by itself; of a line's upper edge it would be noise.
      return features.type == FeatureType::image ? CmvnMode::whole : CmvnMode::mean_variance;
    case Cmvn::global:
      return CmvnMode::global;
  }
  return CmvnMode::none;
}

TargetKind target_kind(Task task) {
  switch (task) {
    case Task::ctc:
      return TargetKind::sequence;
    case Task::classify:
      return TargetKind::utterance_class;
    case Task::regress:
      return TargetKind::regression;
  }
  return TargetKind::none;
}

namespace {

std::vector<Waveform> noise_recordings(const Config& config, const AudioReader* audio) {
  std::vector<Waveform> out;
  const std::string& path = config.augment.noise_recordings;
  if (path.empty() || !(config.augment.noise > 0)) return out;
  if (!audio) fail_input("augment.noise_recordings: this program cannot read recordings");
  const Manifest manifest = read_manifest(path);
  for (const ManifestEntry& e : manifest.entries) {
    const std::string where = manifest.where(e);
    if (e.kind != InputKind::recording) {
      fail_input(where, ": ", e.path,
                 e.kind == InputKind::image ? " is an image" : " holds ready features",
                 ", expected a recording");
    }
    try {
      out.push_back(audio->read(e.file(), config.features.rate, e.segment()));
    } catch (const InputError& error) {
      fail_input(where, ": ", error.what());
    }
    if (out.back().samples.empty()) fail_input(where, ": ", e.path, " holds no samples");
  }
  return out;
}

void thin(std::vector<ManifestEntry>& entries, size_t most) {
  const size_t n = entries.size();
  if (n <= most) return;
  std::vector<ManifestEntry> kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(std::move(entries[i * n / most]));
  entries = std::move(kept);
}

// Below this, opening all headers takes less than a second.
constexpr size_t lengths_worth_keeping = 10000;

void keep(const LengthCache& lengths) {
  try {
    lengths.save();
  } catch (const InputError&) {
    // A folder that cannot be written: the next run opens the headers again, and that is all.
  }
}

std::unique_ptr<ManifestDataset> make_dataset(Manifest manifest, const DatasetOptions& o,
                                              MediaReaders readers, const TextEncoder* text) {
  if (!readers.audio || manifest.entries.size() < lengths_worth_keeping) {
    return std::make_unique<ManifestDataset>(std::move(manifest), o, readers, text);
  }
  const LengthCache lengths(manifest.path + ".lengths",
                            readers.lengths ? *readers.lengths : *readers.audio);
  readers.lengths = &lengths;
  auto data = std::make_unique<ManifestDataset>(std::move(manifest), o, readers, text);
  if (lengths.asked() > 0) keep(lengths);
  return data;
}

// A few bad files are no reason to stop; a disk that is not mounted is one.
void require_readable(const ManifestDataset& data, const Config& config) {
  const auto& problems = data.problems();
  const auto unreadable = std::count_if(problems.begin(), problems.end(), [](const auto& p) {
    return p.kind == DatasetProblem::Kind::unreadable;
  });
  const int64_t all = data.size() + static_cast<int64_t>(problems.size());
  const double limit = config.data.unreadable_limit;
  if (static_cast<double>(unreadable) <= limit * static_cast<double>(all)) return;
  fail_input(summarize(problems, all, noun_of(input_kind(config.features.type)), config.data.train),
             "\n  more files cannot be read than data.unreadable_limit, ", limit, ", allows");
}

}  // namespace

std::unique_ptr<ManifestDataset> open_dataset(const Config& config, const std::string& manifest,
                                              DataUse use, const MediaReaders& readers,
                                              const TargetNames& names, size_t most) {
  Manifest read = read_texts(config, manifest);
  if (most > 0) thin(read.entries, most);
  return open_dataset(config, std::move(read), use, readers, names);
}

namespace {

// All utterances are of the kind that the features are made of.
void require_kind(const Manifest& manifest, FeatureType type) {
  const InputKind wanted = input_kind(type);
  for (const ManifestEntry& e : manifest.entries) {
    if (e.kind == wanted) continue;
    const char* what = e.kind == InputKind::recording  ? " is a recording"
                       : e.kind == InputKind::features ? " holds ready features"
                                                       : " is an image";
    const char* instead = e.kind == InputKind::features ? "not \"ready\""
                          : e.kind == InputKind::image  ? "not \"image\""
                          : wanted == InputKind::image  ? "\"image\""
                                                        : "\"ready\"";
    fail_input(manifest.where(e), ": ", e.path, what, ", but features.type is ", instead);
  }
}

}  // namespace

std::unique_ptr<ManifestDataset> open_dataset(const Config& config, Manifest manifest, DataUse use,
                                              const MediaReaders& readers,
                                              const TargetNames& names) {
  DatasetOptions o;
  o.features = config.features;
  o.line = config.features;
  o.cmvn = cmvn_mode_of(config.features);
  o.seed = config.training.seed;
  o.target = use == DataUse::inference ? TargetKind::none : target_kind(config.task);
  o.classes = names.classes;
  o.max_frames = use == DataUse::training ? config.data.max_frames : 0;
  o.threads = cpu_threads(config.training.threads, "training.threads");
  if (use == DataUse::training) {
    o.augment = config.augment;
    o.noises = noise_recordings(config, readers.audio);
    o.distort = config.distort;
    using Kind = DatasetProblem::Kind;
    o.left_out.push_back(Kind::too_long);
    const auto may_skip = [&](Kind kind, OnBadData chosen, const char* key) {
      if (chosen == OnBadData::skip)
        o.left_out.push_back(kind);
      else
        o.advice[kind] = str(key, "=skip leaves ", kind == Kind::unreadable ? "files" : "texts",
                             " of this kind out");
    };
    may_skip(Kind::unreadable, config.data.unreadable, "data.unreadable");
    may_skip(Kind::text, config.data.text_outside_alphabet, "data.text_outside_alphabet");
    may_skip(Kind::too_short, config.data.text_too_long, "data.text_too_long");
    if (!config.training.init_from.empty() && config.training.init_alphabet == InitAlphabet::keep) {
      if (config.task != Task::classify)
        o.advice[Kind::text] = "--alphabet extend lets the model learn their characters";
      else if (!names.classes.empty())
        o.advice[Kind::target] = "--alphabet extend lets the model learn them";
    }
    o.output_frames = [model = config.model](int64_t frames) {
      return output_frames_of(model, frames);
    };
  } else {
    // References may hold characters the model cannot write: they count as errors, not as bad data.
    o.unknown = UnknownCharacters::skip;
    o.output_frames = [](int64_t) { return int64_t{1} << 40; };
  }
  require_kind(manifest, config.features.type);
  std::unique_ptr<ManifestDataset> data = make_dataset(std::move(manifest), o, readers, names.text);
  if (use == DataUse::training) require_readable(*data, config);
  return data;
}

void change_texts(const Config& config, Manifest& manifest, DotlessI* found) {
  if (!config.text.any()) return;
  for (ManifestEntry& e : manifest.entries) {
    try {
      if (e.text && found && config.text.puts_dot_on_i()) found->add(*e.text);
      if (e.text) e.text = apply_rules(config.text, *e.text);
    } catch (const InputError& error) {
      fail_input(manifest.where(e), ": ", error.what());
    }
  }
}

Manifest read_texts(const Config& config, const std::string& manifest) {
  Manifest read = read_manifest(manifest);
  change_texts(config, read);
  return read;
}

void require_data_settings(const Config& config) {
  const AugmentConfig& a = config.augment;
  if (!a.noise_recordings.empty() && !(a.noise > 0)) {
    fail_input("augment.noise_recordings is '", a.noise_recordings,
               "', but augment.noise is 0: no utterance would get noise");
  }
  // These settings are of what only recordings or only images have. Ready features keep
  // features.hop_ms: it is the time between two frames.
  static const std::set<std::string> of_recordings = {
      "features.bins",         "features.coefficients",    "features.rate",
      "features.frame_ms",     "features.low_hz",          "features.high_hz",
      "features.preemphasis",  "features.dither",          "augment.speed",
      "augment.noise",         "augment.noise_recordings", "augment.noise_snr_low",
      "augment.noise_snr_high"};
  static const std::set<std::string> of_images = {
      "features.height",  "features.padding", "features.ink",    "features.contrast",
      "features.scaling", "features.deskew",  "features.centre", "features.direction"};
  const InputKind kind = input_kind(config.features.type);
  const std::string type = kind == InputKind::image      ? "\"image\""
                           : kind == InputKind::features ? "\"ready\""
                                                         : "not \"image\"";
  for (const std::string& change : config_differences(Config(), config)) {
    const std::string key = change.substr(0, change.find(':'));
    const bool needs_image = of_images.contains(key) || key.starts_with("distort.");
    const bool needs_sound =
        of_recordings.contains(key) || (key == "features.hop_ms" && kind == InputKind::image);
    if (!(needs_sound && kind != InputKind::recording) &&
        !(needs_image && kind != InputKind::image)) {
      continue;
    }
    fail_input(key, " is", change.substr(change.rfind(" -> ") + 3), ", but features.type is ", type,
               ": it works on ", needs_image ? "images" : "recordings", " alone");
  }
}

void require_fit(const ManifestDataset& data, const std::string& manifest, Task task,
                 const ModelSizes& sizes, const std::string& where) {
  if (data.feature_dim() != sizes.features) {
    fail_input(manifest, ": its features have ", data.feature_dim(), " columns, ", where, " has ",
               sizes.features);
  }
  if (task == Task::classify && data.classes() > sizes.outputs) {
    fail_input(manifest, ": holds class ", data.classes() - 1, ", ", where, " has classes 0 to ",
               sizes.outputs - 1);
  }
  if (task == Task::regress && data.target_dim() != sizes.outputs) {
    fail_input(manifest, ": its targets have ", data.target_dim(), " numbers, ", where, " has ",
               sizes.outputs);
  }
}

std::vector<std::string> class_names(const Manifest& manifest) {
  std::set<std::string> names;
  const ManifestEntry* numbered = nullptr;
  for (const ManifestEntry& e : manifest.entries) {
    if (!e.class_name.empty()) names.insert(e.class_name);
    if (e.label && !numbered) numbered = &e;
    if (names.empty() || !numbered) continue;
    fail_input(manifest.where(e), ": the class is ", field_value(e, "label").dump(),
               ", and that of other lines ", e.label ? "has a name" : "is a number",
               "; expected names or numbers throughout");
  }
  return {names.begin(), names.end()};
}

Alphabet as_read(const FeaturesConfig& features, const Alphabet& alphabet) {
  return features.direction == LineDirection::leftwards ? alphabet.reading_leftwards() : alphabet;
}

namespace {

// Of an alphabet as it is given: in this order, each as often as it is there.
std::vector<std::string> symbols_of(const std::string& alphabet, const TextRules& rules) {
  const std::string text = to_nfc(alphabet);
  std::vector<std::string> symbols;
  if (rules.unit == TextUnit::word) {
    for (const std::string& word : split_words(text)) symbols.push_back(word + " ");
    return symbols;
  }
  const bool has_marks = rules.marks == Marks::token;
  for (const TextPiece& p : has_marks ? pieces_of(text) : std::vector<TextPiece>{{text}}) {
    if (p.is_mark) {
      symbols.push_back(p.text);
    } else {
      for (const char32_t c : code_points(p.text)) symbols.push_back(to_utf8(c));
    }
  }
  return symbols;
}

// Data of another task, for which nobody has asked.
void require_sequences(const Config& config, const Manifest& manifest) {
  const auto any = [&](const auto& has) {
    return std::any_of(manifest.entries.begin(), manifest.entries.end(), has);
  };
  if (any([](const ManifestEntry& e) { return e.text || e.labels; })) return;
  const bool classes = any([](const auto& e) { return e.label || !e.class_name.empty(); });
  if (!classes && !any([](const auto& e) { return !e.target.empty(); })) return;
  fail_input(config.data.train, ": has ", classes ? "classes (\"label\")" : "numbers (\"target\")",
             " and no texts: ", classes ? "task=classify" : "task=regress", " learns them");
}

}  // namespace

Alphabet make_alphabet(const Config& config, const Manifest& manifest) {
  if (!config.data.alphabet.empty()) {
    try {
      return Alphabet(symbols_of(config.data.alphabet, config.text));
    } catch (const InputError& e) {
      fail_input("data.", e.what());  // "alphabet: symbol ..."
    }
  }
  const std::vector<std::string> transcripts = manifest.transcripts();
  if (!transcripts.empty()) {
    Alphabet alphabet = Alphabet::from_transcripts(transcripts, config.text);
    if (alphabet.symbols().empty()) {
      fail_input(config.data.train, ": the texts of all ", transcripts.size(), " ",
                 noun_of(input_kind(config.features.type)),
                 "s are empty: there is nothing to learn");
    }
    return alphabet;
  }
  require_sequences(config, manifest);
  int32_t largest = 0;
  for (const ManifestEntry& e : manifest.entries) {
    if (e.labels && !e.labels->empty())
      largest = std::max(largest, *std::max_element(e.labels->begin(), e.labels->end()));
  }
  if (largest == 0 && std::any_of(manifest.entries.begin(), manifest.entries.end(),
                                  [](const ManifestEntry& e) { return e.labels.has_value(); })) {
    fail_input(config.data.train, ": the labels of all ", noun_of(input_kind(config.features.type)),
               "s are empty: there is none to learn");
  }
  return Alphabet::of_numbers(largest);
}

}  // namespace rondo
