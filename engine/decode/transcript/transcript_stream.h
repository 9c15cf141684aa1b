// Utterances out of a model's outputs that go on without end, a day of a microphone's, say.
//
//   TranscriptStream stream(vocabulary, &decoder, 0.04);
//   while (more) {
//     std::cout << stream.accept(logits, frames) << std::flush;
//     for (const StreamedTranscript& t : stream.ended()) note(t.begin, t.words);
//   }
//   const StreamedTranscript last = stream.finish();
//   std::cout << last.text.substr(last.told) << "\n";
//
// An utterance ends where silence follows speech, or where it has become long. Then its text is
// final, and the search begins anew behind it. So memory is that of the longest utterance, and a
// second of sound takes the same time after six hours as after six seconds.
//
// A frame is silent where its best class is the blank, a separator of words, or a token that is
// never written. The longer an utterance has become, the shorter a silence ends it: from half of
// `longest` on, what is needed falls evenly from `silence` to 0.2 seconds (or `silence`, if that is
// less). An utterance of `longest` ends at its next silent frame, or at twice that length anyhow.
// Texts that end at a silent frame are, without a search, the text of the whole, cut up.
//
// Errors: Error for a score that is NaN, naming the frame from the beginning, and for options that
// are negative or NaN. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/decode/transcript/transcript.h"

namespace rondo {

// Where an utterance ends, in seconds; 0: never for this reason.
struct EndpointOptions {
  double silence = 1;  // behind speech
  double longest = 30;
};

// An utterance of a stream. Times, those of its words too, are from the beginning of the stream.
struct StreamedTranscript : Transcript {
  double begin = 0, end = 0;  // of the outputs that it was found in
  size_t told = 0;            // bytes of its text that accept() had returned before it ended
};

class TranscriptStream {
 public:
  // Borrows the vocabulary. `decoder`: nullptr writes the best class of each frame. The others as
  // transcript_of() takes them.
  TranscriptStream(const Vocabulary& vocabulary, const Decoder* decoder, double frame_seconds,
                   Confidence confidence = Confidence::mean, const EndpointOptions& options = {});
  TranscriptStream(Vocabulary&&, const Decoder*, double, Confidence = Confidence::mean,
                   const EndpointOptions& = {}) = delete;
  ~TranscriptStream();
  TranscriptStream(TranscriptStream&&) noexcept;
  TranscriptStream& operator=(TranscriptStream&&) noexcept;

  // The next frames, [frames, classes]. Returns the text that has become final, with a line feed
  // behind each utterance that has ended: these and the last utterance's rest are the whole.
  std::string accept(const float* scores, int32_t frames);
  // Those that ended in the last call of accept(), without those that have no text.
  const std::vector<StreamedTranscript>& ended() const;
  // Of the utterance that goes on.
  struct Partial {
    std::string stable;  // will not change any more
    std::string text;    // the best so far; begins with `stable`
    double silence = 0;  // seconds at its end
  };
  Partial partial() const;
  // So many seconds have passed that there are no outputs of.
  void skip(double seconds);
  // The outputs are over: the last utterance, whose text may be empty. The stream is then as new.
  StreamedTranscript finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
