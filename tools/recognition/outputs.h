// The outputs of CTC models that other programs trained: what the classes are, and the scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/features/npy.h"
#include "engine/decode/vocabulary.h"
#include "tools/command_line/command_line.h"
#include "tools/recognition/inputs.h"

namespace rondo {

struct OutputsOptions {
  std::string blank, border, scores = "auto";
  bool ignores_unnamed = false;
};

// --blank, --ignore-unnamed, --word-border, --scores.
void add_outputs_options(Command& command, OutputsOptions* options);

// Whether it is a model that rondo made, a folder or a file, and no vocabulary.
bool is_own_model(const std::string& path);

// Throws InputError, WrongUsage.
Vocabulary open_vocabulary(const std::string& path, const OutputsOptions& options);
// Logits, for decoders normalise them; of as many classes as the vocabulary of that name has.
// Throws InputError.
Matrix read_logits(const ModelInput& input, const OutputsOptions& options,
                   const Vocabulary& vocabulary, const std::string& vocabulary_name);

// Outputs that arrive on standard input, frame by frame: little-endian 32-bit floats, or a .npy
// file.
class OutputsStream {
 public:
  OutputsStream(const OutputsOptions& options, const Vocabulary& vocabulary,
                std::string vocabulary_name);

  // The logits of the next frame, as read_logits() makes them, until the next call; nullptr at the
  // end. What is to be probabilities or not, the first frame says. Classes that are ignored come
  // behind the vocabulary's. Throws InputError.
  const float* next();
  int64_t frames() const { return frames_; }

 private:
  static constexpr const char* name = "standard input";

  std::string read(size_t bytes);
  void begin();

  const OutputsOptions options_;
  std::string kind_;
  const Vocabulary& vocabulary_;
  std::string vocabulary_name_;
  std::string held_;  // read, not looked at
  data::NpyHeader header_;
  int64_t announced_ = -1;  // frames; -1: nobody says how many
  std::vector<float> frame_;
  int64_t frames_ = 0;
};

}  // namespace rondo
