// The outputs of a ctc model for a recording of any length, with the memory of short ones.
//
// A model that can stream (engine/train/recognition/output_stream.h) computes them chunk by
// chunk, which gives what Recognizer::transcribe() gives, exactly. Any other computes pieces that
// overlap: each with so much sound before and behind it that what lies beyond hardly matters, of
// which the outputs are thrown away; where features are normalised by the utterance, half a second
// and more of digital silence is blank without being computed. A recording of up to two pieces is
// computed whole.
//
// Errors: InputError for models of other tasks or of ready features. One thread at a time.
#pragma once

#include <functional>
#include <vector>

#include "engine/train/recognition/recognizer.h"

namespace rondo {

struct PieceOptions {
  double seconds = 30, context = 3;                // both are rounded up to whole output frames
  std::function<void(double done)> progress = {};  // told the seconds; what it throws ends the call
};

// [frames, classes]. The features of the whole recording are in memory meanwhile.
std::vector<float> long_outputs(Recognizer& model, Waveform audio, const PieceOptions& options);

}  // namespace rondo
