// Utterances by number: what the sampler, the batch builder and the prefetcher work on.
//
// ManifestDataset reads recordings or ready features that a manifest lists. It finds what cannot be
// trained on when it is made, not in the middle of an epoch: files that are missing or unreadable,
// text outside the alphabet, transcripts that are longer than their frames allow, missing targets.
//
// Thread safety: const members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/augment.h"
#include "engine/data/features/acoustic_features.h"
#include "engine/data/features/cmvn.h"
#include "engine/data/image/line_features.h"
#include "engine/data/line_distortion.h"
#include "engine/data/manifest.h"
#include "engine/data/text_encoder.h"

namespace rondo {

// One utterance, ready for the network. Of the targets only those of the dataset's kind are set.
struct Example {
  Matrix features;
  std::vector<int32_t> labels;        // sequence
  int32_t class_index = -1;           // utterance class
  std::vector<int32_t> frame_labels;  // class of each frame
  std::vector<float> target;          // regression
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int32_t feature_dim() const = 0;
  // Length of utterance i in an epoch: what load() will give (augmentation by speed changes it).
  virtual int32_t frames(int64_t i, uint64_t epoch) const = 0;
  virtual uint64_t key(int64_t i) const = 0;
  // The name in messages: "train.jsonl:7".
  virtual std::string name(int64_t i) const = 0;
  // Throws InputError when the utterance cannot be read.
  virtual Example load(int64_t i, uint64_t epoch) const = 0;
};

enum class TargetKind : uint8_t { none, sequence, utterance_class, frame_class, regression };

enum class BadUtterances : uint8_t { error, skip };

struct DatasetProblem {
  enum class Kind : uint8_t { unreadable, text, too_short, too_long, target };
  Kind kind;
  std::string where;  // "train.jsonl:7"
  std::string what;   // a sentence that names the file
};

// Who reads what an utterance is: borrowed, nullptr where there is none of the kind.
struct MediaReaders {
  const AudioReader* audio = nullptr;
  const ImageReader* images = nullptr;
  // Who tells the lengths of recordings while a dataset is made; nullptr: `audio`.
  const AudioReader* lengths = nullptr;

  MediaReaders() = default;
  MediaReaders(const AudioReader* audio_, const ImageReader* images_ = nullptr,
               const AudioReader* lengths_ = nullptr)
      : audio(audio_), images(images_), lengths(lengths_) {}
};

struct DatasetOptions {
  SoundConfig features;  // of recordings; ready features are taken as they are
  LineConfig line;       // of images
  CmvnMode cmvn = CmvnMode::none;
  std::optional<GlobalCmvn> global_cmvn;  // for CmvnMode::global; without it, none is applied
  AugmentConfig augment;
  std::vector<Waveform> noises;  // augment.noise_recordings, read
  DistortConfig distort;         // of images
  uint64_t seed = 0;

  TargetKind target = TargetKind::sequence;
  // Names of the classes 0, 1, ... of utterances; empty: the manifest has their numbers.
  std::vector<std::string> classes;
  UnknownCharacters unknown = UnknownCharacters::error;
  // What may be done about utterances of a kind: a clause of the error that refuses them.
  std::map<DatasetProblem::Kind, std::string> advice;
  BadUtterances bad = BadUtterances::error;
  std::vector<DatasetProblem::Kind> left_out;  // kinds that are skipped even if `bad` is error

  // Frames of the network's output for so many input frames (subsampling); empty: as many. A
  // sequence needs its labels plus its adjacent repeats (CTC) of them.
  std::function<int64_t(int64_t)> output_frames;
  int64_t max_frames = 0;  // longer utterances are bad; 0: no limit

  // Take a recording's length from the manifest where it is given, instead of opening every file:
  // starts sooner, but a missing file is noticed only in its batch, and lengths are as inexact as
  // the manifest's.
  bool trust_durations = false;
  int threads = 1;  // that open files at the start
};

const char* name_of(DatasetProblem::Kind kind);

// Counts by kind, then at most `limit` of the problems, each on a line of its own. `all`: how many
// utterances there were, good ones too; `noun`: what they are called, noun_of().
std::string summarize(const std::vector<DatasetProblem>& problems, int64_t all,
                      std::string_view noun, const std::string& manifest, size_t limit = 10);

namespace data {
class MeasuredLines;
}

class ManifestDataset final : public Dataset {
 public:
  // The readers and `text` are borrowed and must outlive the dataset; nullptr where the manifest
  // needs none (recordings, images or transcripts are then an InputError). With
  // BadUtterances::error any problem of a kind that is not left out throws InputError with the
  // summary of all; what is skipped is listed in problems(), but an InputError is still thrown when
  // nothing remains.
  ManifestDataset(Manifest manifest, const DatasetOptions& options, const MediaReaders& readers,
                  const TextEncoder* text);
  ~ManifestDataset() override;

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int32_t feature_dim() const override { return feature_dim_; }
  int32_t frames(int64_t i, uint64_t epoch) const override;
  uint64_t key(int64_t i) const override { return item(i).key; }
  std::string name(int64_t i) const override;
  // A hash of what the utterance is and is to become: its key, its length, its text or other
  // targets. What is inside of a recording is not looked at.
  uint64_t content_hash(int64_t i) const;
  Example load(int64_t i, uint64_t epoch) const override;

  // The features before normalisation and augmentation.
  Matrix raw_features(int64_t i) const;
  // Of an image: the ink that the network sees in an epoch, before normalisation.
  Matrix distorted_line(int64_t i, uint64_t epoch) const;
  // Labels of its sequence target; 0 without one.
  int64_t label_count(int64_t i) const { return static_cast<int64_t>(item(i).labels.size()); }
  const ManifestEntry& entry(int64_t i) const { return item(i).entry; }
  const std::vector<DatasetProblem>& problems() const { return problems_; }
  // Columns of the regression target, 0 without one.
  int32_t target_dim() const { return target_dim_; }
  // Largest class + 1, 0 without classes.
  int32_t classes() const { return classes_; }
  double seconds(int64_t i) const;  // of a recording; 0 for all else
  double total_seconds() const;
  // Of recordings whose lengths were not taken from the manifest: how many have which rate, Hz.
  std::map<int32_t, int64_t> rates() const;
  void set_global_cmvn(GlobalCmvn cmvn) { options_.global_cmvn = std::move(cmvn); }

 private:
  struct Item {
    ManifestEntry entry;
    std::vector<int32_t> labels;
    uint64_t key = 0;
    int64_t samples = 0;      // of a recording, at the model's rate
    int32_t sample_rate = 0;  // its own; 0: not known
    int64_t ready_frames = 0;
    ImageInfo image;
    int64_t measured = 0;  // in measured_
  };

  const Item& item(int64_t i) const;
  std::optional<DatasetProblem> prepare(Item& item, int32_t& dim) const;
  void measure(Item& item, int32_t& dim) const;
  void check_target(Item& item) const;
  int32_t number_of_class(const ManifestEntry& entry) const;
  void check_lengths(const Item& item) const;
  int64_t frames_at(const Item& item, int32_t percent) const;
  // The fewest and the most that augmentation may make of it.
  std::pair<int64_t, int64_t> range_of_frames(const Item& item) const;
  void settle_dimensions(std::vector<std::optional<DatasetProblem>>& found,
                         const std::vector<int32_t>& dims);
  Matrix features_of(const Item& item, const AugmentKey* augment) const;
  Matrix sound_of(const Item& item, const AugmentKey* augment) const;
  GreyImage line_image(const ManifestEntry& entry) const;
  Matrix line_of(const Item& item, const AugmentKey* augment) const;

  std::string manifest_path_;
  DatasetOptions options_;
  MediaReaders readers_;
  const TextEncoder* text_;
  std::optional<FeatureExtractor> extractor_;
  std::unique_ptr<data::MeasuredLines> measured_;  // where a line's size is that of its ink
  std::vector<Item> items_;
  std::vector<DatasetProblem> problems_;
  int32_t feature_dim_ = 0;
  int32_t target_dim_ = 0;
  int32_t classes_ = 0;
  std::map<std::string, int32_t, std::less<>> class_numbers_;  // of options_.classes
};

// Mean and variance over the first `most` utterances (0: all), in a fixed order whatever the number
// of threads.
GlobalCmvn global_cmvn(const ManifestDataset& dataset, int64_t most = 0, int threads = 1);

}  // namespace rondo
