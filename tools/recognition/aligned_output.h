// What an alignment has found, written for people and programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/data/manifest.h"
#include "engine/decode/transcript/text_alignment.h"
#include "engine/decode/transcript/utterances.h"
#include "tools/recognition/inputs.h"
#include "tools/recognition/predictions.h"

namespace rondo {

struct Aligned {
  AlignedText text;
  double seconds = 0;              // of the recording
  std::vector<std::string> lines;  // of the text, as it was given
};

// On standard output, or into a file whose name is written then. `by_lines`: times of the text's
// lines; text.line_ends is of these. `in_seconds`: times are not frames. Throws InputError for a
// file that cannot be written.
void write_aligned(const PredictionStyle& style, const ModelInput& input, Aligned result,
                   bool by_lines, bool in_seconds);

// Utterances as lines of a manifest.
class UtteranceManifest {
 public:
  struct Options {
    std::string file, recording;  // the recording, if it is not the input
    UtteranceOptions utterances;
    double least_score = 0;  // that an utterance must have
  };
  explicit UtteranceManifest(Options options) : options_(std::move(options)) {}

  void add(const ModelInput& input, const Aligned& result);
  // Throws InputError where no utterance is good enough, too.
  void write() const;

 private:
  std::string path_of(const ModelInput& input) const;

  Options options_;
  std::vector<ManifestEntry> entries_;
  size_t found_ = 0;
  double seconds_found_ = 0, kept_seconds_ = 0;
};

}  // namespace rondo
