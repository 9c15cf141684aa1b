// What a trained model is, without its weights.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"

namespace rondo {

// What the data decide about a model.
struct ModelSizes {
  int64_t features = 0;  // columns per frame
  int64_t outputs = 0;   // ctc: alphabet and blank; classify: classes; regress: target columns
};

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

struct ModelDescription {
  Config config;
  ModelSizes sizes;
  std::vector<std::string> alphabet;     // ctc with text: the symbols of labels 1, 2, ...
  std::vector<std::string> classes;      // classify: the names of 0, 1, ...; empty: they have none
  std::vector<float> mean, inverse_std;  // features.cmvn = "global"; otherwise empty
  bool int8 = false;  // weights of 8 bits in its file, products with such operands on CPUs
  ModelOrigin origin;
  std::vector<std::string> ignored;  // StoredConfig's

  // As a model file has it, and back.
  std::map<std::string, std::string> to_metadata() const;
  // Throws InputError naming `where` when a field is missing or not as expected.
  static ModelDescription from_metadata(const std::map<std::string, std::string>& metadata,
                                        const std::string& where);
};

// A class by its name or, where they have none (`classes` is empty), by its number.
std::string class_text(std::span<const std::string> classes, int64_t index);

}  // namespace rondo
