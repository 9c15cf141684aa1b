#include "tools/recognition/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>

#include "engine/data/audio/audio.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/npy.h"
#include "engine/data/manifest.h"
#include "engine/io/safetensors.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

bool is_feature_file(const std::string& path) {
  return path.ends_with(".npy") || path.ends_with(".safetensors");
}

ModelInput from_manifest(const ManifestEntry& e) {
  ModelInput input;
  input.name = e.name();
  input.file = e.file();
  input.key = e.features_key;
  input.is_audio = e.is_audio;
  input.segment = e.segment();
  input.known = Json::parse(to_json_line(e));
  return input;
}

void add_file(const std::string& path, std::vector<ModelInput>& inputs) {
  ModelInput input;
  input.name = input.file.path = path;
  input.is_audio = !is_feature_file(path);
  if (!path.ends_with(".safetensors") || !fs::is_regular_file(path)) {
    inputs.push_back(std::move(input));
    return;
  }
  const SafetensorsFile file(path);
  for (const StoredTensor& tensor : file.tensors()) {
    inputs.push_back(input);
    inputs.back().key = tensor.name;
    if (file.tensors().size() > 1) inputs.back().name += ":" + tensor.name;
  }
}

void add_folder(const std::string& folder, bool ready_features, std::vector<ModelInput>& inputs) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string path = entry.path().string();
      const bool wanted = ready_features ? path.ends_with(".npy") : is_recording_name(path);
      if (wanted && entry.is_regular_file()) files.push_back(path);
    }
  } catch (const fs::filesystem_error& e) {
    fail_input(folder, ": cannot be read as a folder: ", e.code().message());
  }
  if (files.empty()) {
    fail_input(folder, ": holds no ",
               ready_features ? "feature files (.npy)"
                              : "recordings (.wav, .flac, .ogg, .opus, .mp3, ...)");
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) add_file(file, inputs);
}

// An endless stream would take all memory.
std::string read_standard_input() {
  constexpr size_t most = size_t{1} << 30, piece = size_t{1} << 20;
  std::string bytes;
  for (size_t n = 1; n > 0 && bytes.size() <= most;) {
    const size_t before = bytes.size();
    bytes.resize(before + piece);
    n = std::fread(bytes.data() + before, 1, piece, stdin);
    bytes.resize(before + n);
  }
  if (bytes.size() > most) {
    fail_input("standard input holds more than ", most,
               " bytes; give so long a recording as a file, or use --stream");
  }
  return bytes;
}

Matrix read_matrix(const ModelInput& input) {
  Matrix features;
  if (input.file.path == "-") {
    const std::string bytes = read_standard_input();
    features = features_from_npy(std::as_bytes(std::span(bytes)), "standard input");
  } else if (!input.key.empty()) {
    features = features_from(SafetensorsFile(input.file.path), input.key);
  } else {
    features = read_feature_file(input.file, input.key);
  }
  return features;
}

}  // namespace

Matrix read_scores(const ModelInput& input) {
  if (input.is_audio) {
    fail_input(input.name, ": is no .npy or .safetensors file of a model's outputs");
  }
  Matrix scores = read_matrix(input);
  for (size_t i = 0; i < scores.data.size(); ++i) {
    if (!std::isnan(scores.data[i])) continue;
    fail_input(input.name, ": frame ", i / static_cast<size_t>(scores.dim), ", class ",
               i % static_cast<size_t>(scores.dim), ": is no number");
  }
  return scores;
}

std::vector<ModelInput> inputs_of(const std::vector<std::string>& words, bool ready_features) {
  std::vector<ModelInput> inputs;
  for (const std::string& word : words) {
    std::error_code ignored;
    if (word == "-") {
      inputs.emplace_back();
      inputs.back().name = inputs.back().file.path = word;
      inputs.back().is_audio = !ready_features;
    } else if (fs::is_directory(word, ignored)) {
      add_folder(word, ready_features, inputs);
    } else if (word.ends_with(".jsonl")) {
      for (const ManifestEntry& e : read_manifest(word).entries) {
        inputs.push_back(from_manifest(e));
      }
    } else {
      add_file(word, inputs);
    }
  }
  return inputs;
}

Waveform read_audio(const ModelInput& input, int32_t sample_rate) {
  if (input.file.path != "-") return SndfileReader().read(input.file, sample_rate, input.segment);
  const std::string bytes = read_standard_input();
  return decode_audio(std::as_bytes(std::span(bytes)), "standard input", sample_rate,
                      input.segment);
}

Matrix read_features(const ModelInput& input, const Recognizer& model, double* seconds) {
  const bool ready = model.description().config.features.type == FeatureType::ready;
  if (input.is_audio == ready) {
    fail_input(input.name, ": holds ", ready ? "a recording" : "ready features", ", ", model.file(),
               " reads ", ready ? "ready features" : "recordings");
  }
  Matrix features;
  if (ready) {
    features = read_matrix(input);
    require_finite(features, input.name);
  } else {
    const Waveform audio = read_audio(input, model.description().config.features.rate);
    *seconds = audio.seconds();
    features = model.features(audio);
  }
  const int64_t wanted = model.description().sizes.features;
  if (features.frames > 0 && features.dim != wanted) {
    fail_input(input.name, ": has ", features.dim, " features per frame, ", model.file(), " reads ",
               wanted);
  }
  if (features.frames == 0 && model.description().config.task != Task::ctc) {
    fail_input(input.name, ": is shorter than a single frame");
  }
  return features;
}

}  // namespace rondo
