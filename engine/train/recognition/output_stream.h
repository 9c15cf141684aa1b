// A model's outputs while the recording arrives, chunk by chunk, bit for bit those of the whole.
//
// For ctc models whose layers never need the end of a recording, and whose features are normalised
// by the training data's statistics or not at all. Memory is that of a chunk.
//
// Digital silence alone says nothing, so it waits until there is anything else, and counts then.
//
// Errors: InputError for a model that cannot stream, saying why, and for samples that are not
// finite. One thread at a time.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/train/recognition/recognizer.h"

namespace rondo {

// Empty: it can stream.
std::string why_no_stream(const Model& model);

class OutputStream {
 public:
  // Borrows the model. `chunk_seconds`: computed at a time, rounded up to whole output frames.
  // `most_silence`: seconds of digital silence at the beginning that count; what is before is left
  // out.
  OutputStream(Recognizer& model, double chunk_seconds,
               double most_silence = std::numeric_limits<double>::infinity());
  ~OutputStream();
  OutputStream(const OutputStream&) = delete;
  OutputStream& operator=(const OutputStream&) = delete;

  // Samples at the model's rate, full scale [-1, 1], any number. Appends the outputs that became
  // known, [frames, classes].
  void accept(std::span<const float> samples, std::vector<float>& outputs);
  // The same of several streams at once, each there once: chunks of one Recognizer's streams are
  // computed together. Samples that are not finite change nothing.
  struct Sound {
    OutputStream* stream;
    std::span<const float> samples;
    std::vector<float>* outputs;
  };
  static void accept(std::span<const Sound> sounds);
  // The recording is over. Appends the last outputs. Afterwards the stream is as new.
  void finish(std::vector<float>& outputs);
  // Of digital silence at the beginning that was left out, whole output frames.
  double seconds_left_out() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
