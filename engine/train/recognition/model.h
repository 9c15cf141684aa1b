// A trained model, read once: what it is, and its weights. Recognizers compute with it; any number
// of them may share one, each in a thread of its own.
//
// An object is a handle; copies share one model. Thread safety: immutable. Errors: InputError for
// files that are missing, damaged, not a model, or hold weights that are not finite.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/vocabulary.h"
#include "engine/text/alphabet.h"
#include "engine/train/model/model_description.h"
#include "kernels/devices.h"

namespace rondo {

class Parameters;       // engine/graph/parameters.h
class SafetensorsFile;  // engine/io/safetensors.h

class Model {
 public:
  // `path`: a checkpoint directory, a generation, or a model file.
  explicit Model(const std::string& path, DeviceId device = {});
  // The bytes of a model file, which are not needed afterwards; `name` stands for it in messages.
  Model(std::span<const std::byte> bytes, const std::string& name, DeviceId device = {});

  const ModelDescription& description() const;
  const std::string& file() const;
  const std::vector<std::string>& warnings() const;
  DeviceId device() const;
  const Alphabet& alphabet() const;
  const Vocabulary& vocabulary() const;  // of the outputs; of ctc models
  // Seconds between two frames of the output; of images, pixels of the scaled line.
  double frame_seconds() const;
  const std::shared_ptr<Parameters>& weights() const;  // for SessionOptions::weights

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace rondo
