// A tiny corpus of ready features on disk, and a configuration that trains on it in milliseconds.
#pragma once

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "tests/data/temporary_folder.h"

namespace rondo::test {

// [frames, cols] f32 as the bytes of a .npy file.
inline std::string npy_bytes(const std::vector<float>& values, int cols) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(values.size() / static_cast<size_t>(cols)) + ", " +
                       std::to_string(cols) + "), }";
  header.append((64 - (header.size() + 11) % 64) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return file;
}

struct TrainingCorpus {
  TemporaryFolder folder;

  explicit TrainingCorpus(int train = 40, int dev = 9) {
    std::mt19937 random(5);
    write("train", train, random);
    write("dev", dev, random);
  }

  // The longest training utterance gets a value that is not a number; returns its file's name.
  std::string spoil_longest() {
    const std::string name = "train" + std::to_string(longest_) + ".npy";
    longest_values_.back() = std::numeric_limits<float>::quiet_NaN();
    folder.write(name, npy_bytes(longest_values_, cols));
    return name;
  }

  // Batches of one to a few utterances, so that with several ranks some get none.
  Config config(const std::string& directory) const {
    Config c;
    c.data.train = folder.path("train.jsonl");
    c.data.dev = folder.path("dev.jsonl");
    c.data.batch_frames = 60;
    c.data.prefetch_threads = 0;
    c.features.type = FeatureType::ready;
    c.features.cmvn = Cmvn::none;
    c.model.hidden = 8;
    c.model.layers = 1;
    c.model.dropout = 0.1;
    c.model.subsample = 1;
    c.training.threads = 1;
    c.training.epochs = 1000;
    c.training.max_steps = 50;
    c.training.samples = 1;
    c.training.checkpoint_dir = folder.path(directory);
    c.training.validate_every_steps = 20;
    c.lr.type = LearningRateType::constant;
    c.lr.warmup_steps = 0;
    c.optimizer.kind = OptimizerOptions::sgd;
    c.optimizer.learning_rate = 0.1;
    c.parallel.timeout_seconds = 20;
    return c;
  }

 private:
  static constexpr int cols = 4;
  int longest_ = 0;
  std::vector<float> longest_values_;

  void write(const std::string& part, int count, std::mt19937& random) {
    std::normal_distribution<float> noise(0, 0.1f);
    std::string manifest;
    for (int i = 0; i < count; ++i) {
      std::string text;
      std::vector<float> values;
      const unsigned letters = 2 + random() % 3;
      for (unsigned l = 0; l < letters; ++l) {
        const unsigned letter = random() % 3;
        text += static_cast<char>('a' + letter);
        for (unsigned f = 0; f < 4 + random() % 3; ++f) {
          for (unsigned c = 0; c < cols; ++c) {
            values.push_back(noise(random) + (f < 3 && c == letter ? 1.0f : 0.0f));
          }
        }
      }
      if (part == "train" && values.size() >= longest_values_.size()) {
        longest_ = i;
        longest_values_ = values;
      }
      const std::string name = part + std::to_string(i) + ".npy";
      folder.write(name, npy_bytes(values, cols));
      manifest += "{\"features_filepath\": \"" + name + "\", \"text\": \"" + text + "\"}\n";
    }
    folder.write(part + ".jsonl", manifest);
  }
};

}  // namespace rondo::test
