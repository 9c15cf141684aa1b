// A trained model as one safetensors file: weights, and in its metadata everything else that is
// needed to use them (configuration, alphabet, normalisation).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/config/metric.h"
#include "engine/io/safetensors.h"
#include "engine/session.h"
#include "engine/train/model/build_model.h"

namespace rondo {

// How a model came about: for people, nothing depends on it.
struct ModelOrigin {
  std::string version;  // of the program that trained it; empty: not known
  int64_t updates = 0;  // before these weights
  // Of the validation that chose them, by this metric. NaN without one.
  double metric = std::numeric_limits<double>::quiet_NaN();
  Metric chosen_by = Metric::automatic;
  int64_t averaged = 0;  // they are the mean of so many checkpoints; 0: of none
  // Of a mean: its loss in that validation. NaN where it is not known.
  double loss = std::numeric_limits<double>::quiet_NaN();
};

// What a model is, without its weights. Plain data.
struct ModelDescription {
  Config config;
  ModelSizes sizes;
  std::vector<std::string> alphabet;     // ctc with text: the symbols of labels 1, 2, ...
  std::vector<std::string> classes;      // classify: the names of 0, 1, ...; empty: they have none
  std::vector<float> mean, inverse_std;  // features.cmvn = "global"; otherwise empty
  ModelOrigin origin;
  std::vector<std::string> ignored;  // StoredConfig's

  StringMap to_metadata() const;
  // Throws InputError naming `where` when a field is missing or not as expected.
  static ModelDescription from_metadata(const StringMap& metadata, const std::string& where);
};

// A class by its name or, where they have none (`classes` is empty), by its number.
std::string class_text(std::span<const std::string> classes, int64_t index);

// A configuration of defaults, but that task, features, model and text are those of a model: what
// training from its weights cannot change, and what its texts are to be like. Throws as
// open_model(); the defaults where the file has weights alone.
Config config_of_model(const std::string& path);

// "features.bins: 40 -> 80" for every setting by which `wanted` would read or build something else
// than a model with `stored` was trained on: all of task, features and model, but what is for
// training alone (dropout, dither).
std::vector<std::string> differing_from_model(const Config& stored, const Config& wanted);

// Writes the session's weights and the description, with a checksum of both in the metadata, and
// replaces the file at once. Throws InputError.
void save_model(const std::string& path, std::span<const TensorToWrite> weights,
                const ModelDescription& description);
void save_model(const std::string& path, const Session& session,
                const ModelDescription& description);

// A model given as a checkpoint directory (its best model; before there is one, the newest whole
// generation), as a generation, or as the file itself. What carries a checksum is compared with it.
// Throws InputError when there is none or it is damaged; *warnings gets a line for each damaged
// generation that was passed over.
SafetensorsFile open_model(const std::string& path, std::vector<std::string>* warnings);

// What there is of such a model: weights, descriptions and settings, and its log. Empty when it
// does not exist.
std::vector<std::string> files_of_model(const std::string& path);

// Throws InputError naming file, tensor and element where a weight is not a finite number: such a
// model computes nothing.
void require_finite(const SafetensorsFile& file);

}  // namespace rondo
