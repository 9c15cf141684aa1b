// Text while outputs or sound arrive: `--stream` of transcribe and decode.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "engine/train/recognition/recognizer_stream.h"
#include "tools/command_line/command_line.h"
#include "tools/recognition/predictions.h"

namespace rondo {

// Where utterances end.
void add_endpoint_options(Command& command, EndpointOptions* o);
// Throws WrongUsage where one of these options was given and nothing streams.
void require_stream(const Command& command, bool streams,
                    std::initializer_list<const char*> options);

// Raw 16-bit samples from standard input, as they come.
class RawSamples {
 public:
  // At most so many; none at the end. Throws InputError for a recording with a header.
  std::span<const float> next(size_t most);
  int64_t count() const { return count_; }

 private:
  std::vector<int16_t> raw_;
  std::vector<float> samples_;
  int64_t count_ = 0;
};

// Writes what is said in recordings while they are heard. Text, lines of JSON and of CTM are
// written when an utterance ends, or, of text alone, as soon as it is final. Other formats have
// what is said as a whole.
class StreamWriter {
 public:
  // Borrows the model. `is_whole`: the recording is one utterance, for its outputs are wanted.
  StreamWriter(Recognizer& model, const PredictionStyle& style, double chunk_seconds,
               const EndpointOptions& endpoint, bool is_whole);

  // `next` gives the next samples, and none at the end. Returns what is left to be written: the
  // whole, in formats that want it.
  Transcript hear(const ModelInput& input, const std::function<std::span<const float>()>& next);
  bool writes_whole() const { return !by_utterance_; }

 private:
  void take(const ModelInput& input, StreamedTranscript t);
  void show(const std::string& text);

  const PredictionStyle style_;
  const bool by_utterance_, shows_;  // shows: text that is final
  RecognizerStream stream_;
  Transcript whole_;
  bool has_written_ = false;
};

}  // namespace rondo
