// Text while outputs or sound arrive: `--stream` of transcribe and decode.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/sound_stream.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "tools/command_line/command_line.h"
#include "tools/recognition/predictions.h"

namespace rondo {

// Where utterances end. `when` begins the help of each: "with --stream: ".
void add_endpoint_options(Command& command, EndpointOptions* o, const std::string& when);
// Throws WrongUsage where one of these options was given and nothing streams.
void require_stream(const Command& command, bool streams,
                    std::initializer_list<const char*> options);

// A recording piece by piece, or, of standard input, raw 16-bit samples of the model's rate, as
// they come.
class HeardSamples {
 public:
  // Borrows the input. Throws InputError.
  HeardSamples(const ModelInput& input, int32_t sample_rate);

  // At most so many; none at the end. Throws InputError, also for standard input that has a header.
  std::span<const float> next(size_t most);
  double seconds() const { return static_cast<double>(count_) / sample_rate_; }
  // Of what has been heard of a recording: see InputExtent.
  std::string narrow() const;

 private:
  std::span<const float> next_raw(size_t most);

  const std::string& name_;
  const int32_t sample_rate_;
  std::optional<SoundStream> recording_;  // none: standard input
  std::optional<Bandwidth> band_;         // of the recording
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
  // whole, in formats that want it. After an InputError, which `next` may throw, other inputs may
  // follow.
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
  bool in_line_ = false;  // what was shown last does not end a line
};

}  // namespace rondo
