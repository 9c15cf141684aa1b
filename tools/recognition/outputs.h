// The outputs of CTC models that other programs trained: what the classes are, and the scores.
#pragma once

#include <optional>
#include <string>

#include "engine/decode/vocabulary.h"
#include "tools/command_line/command_line.h"
#include "tools/recognition/inputs.h"

namespace rondo {

struct OutputsOptions {
  std::string blank, border, scores = "auto";
};

// --blank, --word-border, --scores.
void add_outputs_options(Command& command, OutputsOptions* options);

// Throws InputError, WrongUsage.
Vocabulary open_vocabulary(const std::string& path, const OutputsOptions& options);
// Logits, for decoders normalise them; of as many classes as the vocabulary of that name has.
// Throws InputError.
Matrix read_logits(const ModelInput& input, const OutputsOptions& options,
                   const Vocabulary& vocabulary, const std::string& vocabulary_name);

}  // namespace rondo
