// Text while a recording is still arriving.
//
//   RecognizerStream stream(model, 0.5);
//   while (more) std::cout << stream.accept(samples) << std::flush;
//   const Transcript whole = stream.finish();
//
// The result is that of Recognizer::transcribe() of the whole recording, exactly: the same
// features, logits and text. For ctc models whose LSTM layers are unidirectional and whose features
// are normalised by the training data's statistics or not at all.
//
// Where the model has a decoder, text is final when all that the search still considers begins with
// it.
//
// Latency: without one, text follows the sound by at most the chunk, plus a feature window and the
// frames that subsampling makes into one, plus the time of computing.
//
// Errors: InputError for a model that cannot stream, saying why. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/train/recognition/recognizer.h"

namespace rondo {

class RecognizerStream {
 public:
  // Borrows the model, whose decoder must be set before. `chunk_seconds`: computed at a time,
  // rounded up to whole output frames.
  RecognizerStream(Recognizer& model, double chunk_seconds);
  ~RecognizerStream();
  RecognizerStream(const RecognizerStream&) = delete;
  RecognizerStream& operator=(const RecognizerStream&) = delete;

  // Samples at the model's rate, full scale [-1, 1], any number. Returns the text that has become
  // final: the pieces, and what is missing of the text at the end, make up the whole.
  std::string accept(std::span<const float> samples);
  // The recording is over. Afterwards the stream is as new.
  Transcript finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
