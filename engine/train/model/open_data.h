// Opens the datasets of a configuration: the features, normalisation, augmentation and checks it
// asks for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/config.h"
#include "engine/data/dataset.h"
#include "engine/text/alphabet.h"
#include "engine/train/model/build_model.h"

namespace rondo {

enum class DataUse : uint8_t {
  training,    // augmented; bad utterances as the configuration says
  evaluation,  // as recorded; utterances that cannot be aligned are kept where possible
  inference,   // no targets
};

CmvnMode cmvn_mode_of(const FeaturesConfig& features);
// What a model with these features reads.
InputKind input_kind(FeatureType type);
TargetKind target_kind(Task task);

// Throws InputError for settings that the kind of features leaves without effect.
void require_data_settings(const Config& config);

// The texts of a manifest, changed by the configuration's rules. Throws InputError, by the line of
// a text that is not UTF-8.
void change_texts(const Config& config, Manifest& manifest, DotlessI* found = nullptr);
// The same of a file.
Manifest read_texts(const Config& config, const std::string& manifest);

// What a run's or a model's targets are written in.
struct TargetNames {
  const TextEncoder* text = nullptr;      // ctc; borrowed
  std::vector<std::string> classes = {};  // classify, by number; empty: they have numbers alone

  TargetNames(const TextEncoder* text_, std::vector<std::string> classes_ = {})
      : text(text_), classes(std::move(classes_)) {}
};

// `manifest`: after change_texts(). The readers and `names.text` are borrowed by the result. Of a
// large manifest of recordings it keeps their lengths in a file beside it (length_cache.h). Throws
// InputError.
std::unique_ptr<ManifestDataset> open_dataset(const Config& config, Manifest manifest, DataUse use,
                                              const MediaReaders& readers,
                                              const TargetNames& names);
// The same of a file. With `most` above 0 at most so many utterances, from all over it.
std::unique_ptr<ManifestDataset> open_dataset(const Config& config, const std::string& manifest,
                                              DataUse use, const MediaReaders& readers,
                                              const TargetNames& names, size_t most = 0);

// InputError unless the data have the columns, and the classes or targets, of the model; `where`
// names the model, or the data it was made for.
void require_fit(const ManifestDataset& data, const std::string& manifest, Task task,
                 const ModelSizes& sizes, const std::string& where);

// The names of classes in a training manifest, each once and sorted; empty where it has their
// numbers. InputError where it has both, by the first line that is other than the lines before.
std::vector<std::string> class_names(const Manifest& manifest);

// The alphabet of a configuration: data.alphabet, or the characters of the training transcripts, or
// the numbers up to the largest label where the training data (`manifest`) are label sequences
// without text.
Alphabet make_alphabet(const Config& config, const Manifest& manifest);
// For lines that are written as the features say.
Alphabet as_read(const FeaturesConfig& features, const Alphabet& alphabet);

}  // namespace rondo
