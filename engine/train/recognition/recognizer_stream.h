// Text while a recording is still arriving, for as long as it does.
//
//   RecognizerStream stream(model, 0.5);
//   while (more) std::cout << stream.accept(samples) << std::flush;
//   const StreamedTranscript last = stream.finish();
//   std::cout << last.text.substr(last.told) << "\n";
//
// The outputs are those of Recognizer::transcribe() of the whole recording, exactly: the same
// features and logits. They are cut into utterances (engine/decode/transcript/transcript_stream.h),
// so that memory and the time for a second of sound stay what they are. Without ends
// (EndpointOptions of 0) the whole is one utterance, whose text is that of transcribe(), and memory
// grows with it. For ctc models whose layers never need the end of a recording, and whose features
// are normalised by the training data's statistics or not at all.
//
// Where the model has a decoder, text is final when all that the search still considers begins with
// it. A stream searches on the CPU.
//
// Latency: without one, text follows the sound by at most the chunk, plus a feature window and the
// frames that subsampling makes into one, plus the time of computing.
//
// Errors: InputError for a model that cannot stream, saying why, and for samples that are not
// finite; Error for a decoder of other classes. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/transcript/transcript_stream.h"
#include "engine/train/recognition/recognizer.h"

namespace rondo {

struct StreamOptions {
  // With an end, digital silence before the first sound counts for at most ten seconds.
  EndpointOptions endpoint = {};
  // In place of the model's, with other hot words, say (Decoder::with_hot_words).
  std::optional<Decoder> decoder = {};
};

class RecognizerStream {
 public:
  // Borrows the model, whose decoder must be set before. `chunk_seconds`: computed at a time,
  // rounded up to whole output frames.
  RecognizerStream(Recognizer& model, double chunk_seconds, const StreamOptions& options = {});
  ~RecognizerStream();
  RecognizerStream(const RecognizerStream&) = delete;
  RecognizerStream& operator=(const RecognizerStream&) = delete;

  // Samples at the model's rate, full scale [-1, 1], any number. Returns the text that has become
  // final, with a line feed behind each utterance that has ended: the pieces, and what is missing
  // of the last utterance, make up the whole.
  std::string accept(std::span<const float> samples);
  // The same of several streams at once, each there once, and what each tells: chunks of streams of
  // one Recognizer are computed together, which takes less time and gives the same bits.
  struct Sound {
    RecognizerStream* stream;
    std::span<const float> samples;
  };
  static std::vector<std::string> accept(std::span<const Sound> sounds);
  // Those that ended in the last call of accept(), or in finish() before the last, without those
  // that have no text.
  const std::vector<StreamedTranscript>& ended() const;
  // Of the utterance that is being heard.
  TranscriptStream::Partial partial() const;
  // The recording is over: the last utterance, whose text may be empty. The stream is then as new.
  StreamedTranscript finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
