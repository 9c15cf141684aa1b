#include "engine/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <locale>
#include <sstream>

#include "engine/data/features/feature_file.h"
#include "engine/data/image/line_shape.h"
#include "engine/data/manifest_field.h"
#include "engine/data/measured_lines.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace rondo {
namespace {

using Kind = DatasetProblem::Kind;

// Thrown while an utterance is examined, so that its kind is kept.
struct Unusable {
  Kind kind;
  std::string what;
};

// CTC needs a frame per label and a blank between equal neighbours (Graves et al. 2006).
int64_t frames_needed(const std::vector<int32_t>& labels) {
  auto needed = static_cast<int64_t>(labels.size());
  for (size_t i = 1; i < labels.size(); ++i) needed += labels[i] == labels[i - 1];
  return needed;
}

// Rounded durations and those of another encoding are a little off; a part that ends far beyond its
// recording is of another one.
void require_duration(const ManifestEntry& e, const AudioInfo& info) {
  const double end = e.offset + e.duration.value_or(0);
  if (!(end > 1.01 * info.seconds() + 0.1)) return;
  fail_input(e.path, ": ends after ", info.seconds(), " s, but by \"offset\" ", e.offset,
             " and \"duration\" ", *e.duration, " it has ", end, " s");
}

}  // namespace

const char* name_of(DatasetProblem::Kind kind) {
  switch (kind) {
    case Kind::unreadable:
      return "unreadable";
    case Kind::text:
      return "with text outside the alphabet";
    case Kind::too_short:
      return "with fewer frames than the labels need";
    case Kind::too_long:
      return "too long";
    case Kind::target:
      return "without a usable target";
  }
  return "?";
}

std::string summarize(const std::vector<DatasetProblem>& problems, int64_t all,
                      std::string_view noun, const std::string& manifest, size_t limit) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << manifest << ": " << problems.size() << " of " << all << " " << noun << "s cannot be used";
  const char* separator = ": ";
  for (Kind kind : {Kind::unreadable, Kind::text, Kind::too_short, Kind::too_long, Kind::target}) {
    const auto n = std::count_if(problems.begin(), problems.end(),
                                 [&](const DatasetProblem& p) { return p.kind == kind; });
    if (n == 0) continue;
    out << separator << n << " " << name_of(kind);
    separator = ", ";
  }
  for (size_t i = 0; i < std::min(limit, problems.size()); ++i)
    out << "\n  " << problems[i].where << ": " << problems[i].what;
  if (problems.size() > limit) out << "\n  and " << problems.size() - limit << " more";
  return out.str();
}

ManifestDataset::ManifestDataset(Manifest manifest, const DatasetOptions& options,
                                 const MediaReaders& readers, const TextEncoder* text)
    : manifest_path_(manifest.path), options_(options), readers_(readers), text_(text) {
  options_.augment.validate();
  options_.line.validate();
  options_.distort.validate();
  const bool any_audio =
      std::any_of(manifest.entries.begin(), manifest.entries.end(),
                  [](const ManifestEntry& e) { return e.kind == InputKind::recording; });
  if (any_audio) extractor_.emplace(options_.features);
  for (const std::string& name : options_.classes)
    class_numbers_.emplace(name, static_cast<int32_t>(class_numbers_.size()));
  for (const Waveform& noise : options_.noises) {
    RONDO_CHECK(noise.sample_rate == options_.features.rate, "noise at ", noise.sample_rate,
                " Hz, features at ", options_.features.rate);
    if (noise.samples.empty()) fail_input("augment: a recording of noise holds no samples");
  }
  if (options_.line.deskew || options_.line.centre)
    measured_ = std::make_unique<data::MeasuredLines>();
  items_.reserve(manifest.entries.size());
  for (ManifestEntry& e : manifest.entries) {
    items_.emplace_back();
    items_.back().entry = std::move(e);
    // Columns of a line that is written downwards lie across the page.
    if (options_.line.direction == LineDirection::downwards)
      items_.back().entry.region.baseline.clear();
  }
  manifest.entries = {};
  std::vector<std::optional<DatasetProblem>> found(items_.size());
  std::vector<int32_t> dims(items_.size());
  ThreadPool pool(std::max(1, options_.threads));
  pool.for_each(static_cast<int64_t>(items_.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    found[at] = prepare(items_[at], dims[at]);
  });
  readers_.lengths = nullptr;
  settle_dimensions(found, dims);

  const auto all = static_cast<int64_t>(items_.size());
  const char* const noun = all == 0 ? "utterance" : noun_of(items_.front().entry.kind);
  size_t kept = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (found[i]) {
      problems_.push_back(std::move(*found[i]));
    } else if (kept++ != i) {
      items_[kept - 1] = std::move(items_[i]);
    }
  }
  items_.resize(kept);
  const bool fatal = options_.bad == BadUtterances::error &&
                     std::any_of(problems_.begin(), problems_.end(), [&](const auto& p) {
                       const auto& out = options_.left_out;
                       return std::find(out.begin(), out.end(), p.kind) == out.end();
                     });
  // One who has to mend them wants them all.
  constexpr size_t most = 1000;
  if (items_.empty() || fatal) {
    const std::string list = summarize(problems_, all, noun, manifest_path_, most);
    const size_t first_line = std::min(list.find('\n'), list.size());
    std::string advice;
    for (const auto& [kind, clause] : options_.advice)
      if (std::any_of(problems_.begin(), problems_.end(),
                      [&](const auto& p) { return p.kind == kind; }))
        advice += "; " + clause;
    fail_input(list.substr(0, first_line), advice, fatal ? "" : "; leaving them out leaves none",
               list.substr(first_line));
  }
}

ManifestDataset::~ManifestDataset() = default;

std::optional<DatasetProblem> ManifestDataset::prepare(Item& item, int32_t& dim) const {
  const std::string where = str(manifest_path_, ":", item.entry.line);
  try {
    item.key = item.entry.key();
    measure(item, dim);
    check_target(item);
    check_lengths(item);
    return std::nullopt;
  } catch (const Unusable& e) {
    return DatasetProblem{e.kind, where, e.what};
  } catch (const InputError& e) {
    return DatasetProblem{Kind::unreadable, where, e.what()};
  }
}

void ManifestDataset::measure(Item& item, int32_t& dim) const {
  const ManifestEntry& e = item.entry;
  if (e.kind == InputKind::features) {
    const FeatureShape shape = feature_file_shape(e.file(), e.features_key);
    item.ready_frames = shape.frames;
    dim = shape.dim;
    return;
  }
  if (e.kind == InputKind::image) {
    if (!readers_.images) fail_input(e.path, ": this program cannot read images");
    if (measured_) {
      const GreyImage line = line_image(e);
      item.image = line.info();
      item.measured = measured_->keep(line);
    } else {
      item.image = region_info(*readers_.images, e.file(), e.region);
    }
    options_.line.require_line(item.image, e.path);
    dim = options_.line.height;
    return;
  }
  if (!readers_.audio)
    fail_input(e.path, ": this program cannot read recordings, only ready features");
  dim = extractor_->config().dim();
  const int32_t rate = extractor_->config().rate;
  if (options_.trust_durations && e.duration) {
    item.samples = std::llround(*e.duration * rate);
    return;
  }
  const AudioInfo info = (readers_.lengths ? readers_.lengths : readers_.audio)->info(e.file());
  if (info.frames == 0) fail_input(e.path, ": holds no samples");
  require_channel(info, e.segment(), e.path);
  const SampleRange range = sample_range(info, e.segment());
  if (range.count == 0)
    fail_input(e.path, ": offset ", e.offset, " s",
               e.duration ? str(" and duration ", *e.duration, " s leave") : " leaves",
               " no samples of its ", info.seconds(), " s");
  require_duration(e, info);
  item.sample_rate = info.sample_rate;
  item.samples = (range.count * rate + info.sample_rate - 1) / info.sample_rate;
}

namespace {

void require_not_wrong(const ManifestEntry& e, const std::string& field) {
  for (const auto& [name, sentence] : e.wrong_targets) {
    if (name == field) throw Unusable{Kind::target, sentence};
  }
}

[[noreturn]] void fail_missing(const ManifestEntry& e, const char* field) {
  require_not_wrong(e, field);
  throw Unusable{Kind::target, str(e.path, ": has no \"", field, "\"")};
}

// "one", "two", "three" or 7 more
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t most = 12;
  std::string text;
  for (size_t i = 0; i < std::min(most, names.size()); ++i)
    text += str(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", Json(names[i]).dump());
  if (names.size() > most) text += str(" or one of ", names.size() - most, " more");
  return text;
}

}  // namespace

int32_t ManifestDataset::number_of_class(const ManifestEntry& e) const {
  const std::vector<std::string>& names = options_.classes;
  if (names.empty() && e.class_name.empty()) return *e.label;
  if (names.empty())
    throw Unusable{Kind::target, str(e.path, ": its \"label\" is the name \"", e.class_name,
                                     "\", expected a number, as the model knows its classes by")};
  if (const auto at = class_numbers_.find(e.class_name); at != class_numbers_.end())
    return at->second;
  throw Unusable{Kind::target, str(e.path, ": its \"label\" is ", field_value(e, "label").dump(),
                                   ", no class of the model; expected ", some_of(names))};
}

void ManifestDataset::check_target(Item& item) const {
  const ManifestEntry& e = item.entry;
  switch (options_.target) {
    case TargetKind::none:
      return;
    case TargetKind::sequence: {
      if (e.text && e.labels)
        throw Unusable{Kind::target,
                       str(e.path, ": has both \"text\" and \"labels\", expected one")};
      if (e.labels) {
        for (int32_t label : *e.labels) {
          if (text_ && label >= text_->classes())
            throw Unusable{Kind::target,
                           str(e.path, ": has label ", label, ", the network has classes 1 to ",
                               text_->classes() - 1, " (0 is the blank)")};
        }
        item.labels = *e.labels;
        return;
      }
      require_not_wrong(e, "labels");
      if (!e.text) fail_missing(e, "text");
      if (!text_) fail_input(e.path, ": this program has no alphabet for its text");
      EncodedText encoded;
      try {
        encoded = text_->encode(*e.text);
      } catch (const InputError& error) {
        throw Unusable{Kind::text, str(e.path, ": ", error.what())};
      }
      if (!encoded.unknown.empty() && options_.unknown == UnknownCharacters::error)
        throw Unusable{Kind::text, str(e.path, ": its text holds ", text_->units(),
                                       " outside the alphabet: ", describe(encoded.unknown))};
      item.labels = std::move(encoded.labels);
      return;
    }
    case TargetKind::utterance_class:
      if (!e.label && e.class_name.empty()) fail_missing(e, "label");
      item.entry.label = number_of_class(e);
      return;
    case TargetKind::frame_class:
      if (e.frame_labels.empty()) fail_missing(e, "frame_labels");
      return;
    case TargetKind::regression:
      if (e.target.empty()) fail_missing(e, "target");
      return;
  }
}

int64_t ManifestDataset::frames_at(const Item& item, int32_t percent) const {
  return extractor_->config().frames(samples_at_speed(item.samples, percent));
}

std::pair<int64_t, int64_t> ManifestDataset::range_of_frames(const Item& item) const {
  const LineConfig& line = options_.line;
  switch (item.entry.kind) {
    case InputKind::features:
      return {item.ready_frames, item.ready_frames};
    case InputKind::image: {
      const auto wide = [&](int32_t permille) {
        return line.frames(line.scaled_width(item.image, permille));
      };
      return {wide(least_line_stretch(options_.distort)),
              wide(greatest_line_stretch(options_.distort))};
    }
    case InputKind::recording:
      break;
  }
  if (options_.augment.speed.empty()) return {frames_at(item, 100), frames_at(item, 100)};
  std::pair<int64_t, int64_t> range{std::numeric_limits<int64_t>::max(), 0};
  for (double speed : options_.augment.speed) {
    const int64_t frames = frames_at(item, percent_of(speed));
    range = {std::min(range.first, frames), std::max(range.second, frames)};
  }
  return range;
}

void ManifestDataset::check_lengths(const Item& item) const {
  const ManifestEntry& e = item.entry;
  const auto [fewest, most] = range_of_frames(item);
  if (fewest < 1) throw Unusable{Kind::too_short, str(e.path, ": is shorter than a single frame")};
  const int64_t out = options_.output_frames ? options_.output_frames(fewest) : fewest;
  const int64_t needed = std::max<int64_t>(1, frames_needed(item.labels));
  if (out < needed)
    throw Unusable{Kind::too_short,
                   str(e.path, ": its labels need ", needed, " frames of the network's output, ",
                       e.kind == InputKind::image ? "the image" : "the recording", " gives ", out)};
  const int64_t limit =
      options_.max_frames > 0 ? options_.max_frames : int64_t{std::numeric_limits<int32_t>::max()};
  if (most > limit)
    throw Unusable{Kind::too_long,
                   str(e.path, ": has ", most, " frames, at most ", limit, " are allowed")};
  if (options_.target == TargetKind::frame_class) {
    const auto given = static_cast<int64_t>(e.frame_labels.size());
    if (given != fewest || given != most) {
      const std::string text = str(e.path, ": has ", given, " frame_labels for ", fewest);
      throw Unusable{Kind::target,
                     fewest == most
                         ? text + " frames"
                         : str(text, " to ", most, " frames, by ",
                               e.kind == InputKind::image ? "distort.stretch" : "augment.speed")};
    }
  }
}

// All utterances must agree with the first usable one.
void ManifestDataset::settle_dimensions(std::vector<std::optional<DatasetProblem>>& found,
                                        const std::vector<int32_t>& dims) {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (found[i]) continue;
    const ManifestEntry& e = items_[i].entry;
    const std::string where = str(manifest_path_, ":", e.line);
    const auto targets = static_cast<int32_t>(e.target.size());
    if (feature_dim_ == 0) feature_dim_ = dims[i];
    if (dims[i] != feature_dim_) {
      found[i] = {
          Kind::unreadable, where,
          str(e.path, ": has ", dims[i], " features per frame, the others have ", feature_dim_)};
      continue;
    }
    if (options_.target == TargetKind::regression) {
      if (target_dim_ == 0) target_dim_ = targets;
      if (targets != target_dim_)
        found[i] = {
            Kind::target, where,
            str(e.path, ": has ", targets, " target numbers, the others have ", target_dim_)};
    }
    if (options_.target == TargetKind::utterance_class) classes_ = std::max(classes_, *e.label + 1);
    if (options_.target == TargetKind::frame_class)
      for (int32_t c : e.frame_labels) classes_ = std::max(classes_, c + 1);
  }
}

const ManifestDataset::Item& ManifestDataset::item(int64_t i) const {
  RONDO_CHECK(i >= 0 && i < size(), "utterance ", i, " of ", size());
  return items_[static_cast<size_t>(i)];
}

std::string ManifestDataset::name(int64_t i) const {
  return str(manifest_path_, ":", item(i).entry.line);
}

uint64_t ManifestDataset::content_hash(int64_t i) const {
  const Item& it = item(i);
  const ManifestEntry& e = it.entry;
  uint64_t h = fnv1a(fnv1a_begin, it.key);
  for (const int64_t length : {it.samples, it.ready_frames}) {
    h = fnv1a(h, static_cast<uint64_t>(length));
  }
  if (e.kind == InputKind::image) {
    for (const int32_t side : {it.image.width, it.image.height})
      h = fnv1a(h, static_cast<uint64_t>(side));
  }
  const auto add = [&h](const auto& values) {
    h = fnv1a(h, values.size());
    h = fnv1a(values.data(), values.size() * sizeof values[0], h);
  };
  // Where there is none the hash stays what it was before lines had any.
  if (!e.region.baseline.empty()) add(e.region.baseline);
  add(e.text.value_or(""));
  add(it.labels);
  add(e.target);
  add(e.frame_labels);
  return fnv1a(h, static_cast<uint64_t>(e.label.value_or(-1)));
}

int32_t ManifestDataset::frames(int64_t i, uint64_t epoch) const {
  const Item& it = item(i);
  const AugmentKey key{options_.seed, epoch, it.key};
  int64_t frames = it.ready_frames;
  if (it.entry.kind == InputKind::recording) {
    frames = frames_at(it, speed_percent(options_.augment, key));
  } else if (it.entry.kind == InputKind::image) {
    const LineConfig& line = options_.line;
    frames = line.frames(line.scaled_width(it.image, line_stretch(options_.distort, key)));
  }
  return static_cast<int32_t>(frames);
}

Matrix ManifestDataset::features_of(const Item& item, const AugmentKey* augment) const {
  const ManifestEntry& e = item.entry;
  if (e.kind == InputKind::recording) return sound_of(item, augment);
  if (e.kind == InputKind::image) return line_of(item, augment);
  Matrix m = read_feature_file(e.file(), e.features_key);
  if (m.dim != feature_dim_ || m.frames != item.ready_frames)
    fail_input(e.path, ": has changed since training began: now ", m.frames, " frames of ", m.dim,
               " features");
  require_finite(m, e.path);
  return m;
}

GreyImage ManifestDataset::line_image(const ManifestEntry& e) const {
  return shaped(options_.line, read_region(*readers_.images, e.file(), e.region));
}

Matrix ManifestDataset::line_of(const Item& item, const AugmentKey* augment) const {
  const ManifestEntry& e = item.entry;
  std::optional<GreyImage> kept;
  if (measured_) kept = measured_->get(item.measured, augment != nullptr);
  const GreyImage image = kept ? std::move(*kept) : line_image(e);
  if (image.width != item.image.width || image.height != item.image.height)
    fail_input(e.path, ": has changed since training began: now ", image.width, " x ", image.height,
               " pixels");
  const int32_t permille = augment ? line_stretch(options_.distort, *augment) : 1000;
  Matrix line =
      line_features(options_.line, image, options_.line.scaled_width(item.image, permille));
  if (augment && options_.distort != DistortConfig())
    distort_line(options_.distort, *augment, line);
  return line;
}

Matrix ManifestDataset::distorted_line(int64_t i, uint64_t epoch) const {
  const AugmentKey key{options_.seed, epoch, item(i).key};
  return line_of(item(i), &key);
}

Matrix ManifestDataset::sound_of(const Item& item, const AugmentKey* augment) const {
  const ManifestEntry& e = item.entry;
  Waveform audio = readers_.audio->read(e.file(), extractor_->config().rate, e.segment());
  uint64_t dither_key = item.key;
  if (augment) {
    change_speed(audio.samples, speed_percent(options_.augment, *augment));
    add_noise(options_.augment, options_.noises, *augment, audio.samples);
    dither_key += augment->epoch;
  }
  return extractor_->compute(audio.samples, dither_key);
}

Matrix ManifestDataset::raw_features(int64_t i) const { return features_of(item(i), nullptr); }

Example ManifestDataset::load(int64_t i, uint64_t epoch) const {
  const Item& it = item(i);
  const AugmentKey key{options_.seed, epoch, it.key};
  Example out;
  try {
    out.features = features_of(it, &key);
    if (out.features.frames == 0) fail_input(it.entry.path, ": is shorter than a single frame");
  } catch (const InputError& e) {
    fail_input(name(i), ": ", e.what());
  }
  if (options_.cmvn == CmvnMode::global) {
    if (options_.global_cmvn) apply(*options_.global_cmvn, out.features);
  } else {
    normalize_utterance(out.features, options_.cmvn);
  }
  mask_spectrum(options_.augment, key, out.features);
  switch (options_.target) {
    case TargetKind::none:
      break;
    case TargetKind::sequence:
      out.labels = it.labels;
      break;
    case TargetKind::utterance_class:
      out.class_index = *it.entry.label;
      break;
    case TargetKind::frame_class:
      out.frame_labels = it.entry.frame_labels;
      break;
    case TargetKind::regression:
      out.target = it.entry.target;
      break;
  }
  return out;
}

double ManifestDataset::seconds(int64_t i) const {
  const Item& it = item(i);
  if (it.entry.kind != InputKind::recording) return 0;
  return static_cast<double>(it.samples) / extractor_->config().rate;
}

std::map<int32_t, int64_t> ManifestDataset::rates() const {
  std::map<int32_t, int64_t> counts;
  for (const Item& item : items_)
    if (item.sample_rate > 0) ++counts[item.sample_rate];
  return counts;
}

double ManifestDataset::total_seconds() const {
  double total = 0;
  for (int64_t i = 0; i < size(); ++i) total += seconds(i);
  return total;
}

GlobalCmvn global_cmvn(const ManifestDataset& dataset, int64_t most, int threads) {
  const int64_t n = most > 0 ? std::min(most, dataset.size()) : dataset.size();
  // Blocks bound the memory; within one, statistics are kept apart and merged in order.
  constexpr int64_t block = 256;
  ThreadPool pool(std::max(1, threads));
  CmvnStats total;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t count = std::min(block, n - begin);
    std::vector<CmvnStats> stats(static_cast<size_t>(count));
    pool.for_each(count, [&](int64_t i) {
      stats[static_cast<size_t>(i)].add(dataset.raw_features(begin + i));
    });
    for (const CmvnStats& s : stats) total += s;
  }
  return total.finish();
}

}  // namespace rondo
