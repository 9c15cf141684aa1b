#include "tools/recognition/streaming.h"

#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {

void add_endpoint_options(Command& command, EndpointOptions* o, const std::string& when) {
  command
      .add_option("--end-silence", o->silence,
                  when + "seconds of silence behind speech that end an utterance; 0: none do")
      .range(0.0, 3600.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--longest", o->longest,
                  when +
                      "seconds after which an utterance ends at its next silent frame; from "
                      "half of that on ever less silence ends it; 0: never")
      .range(0.0, 86400.0)
      .type_name("FLOAT")
      .show_default();
}

void require_stream(const Command& command, bool streams,
                    std::initializer_list<const char*> options) {
  for (const char* option : options)
    if (command.has(option) && !streams) throw WrongUsage(str(option, " goes with --stream"));
}

HeardSamples::HeardSamples(const ModelInput& input, int32_t sample_rate)
    : name_(input.name), sample_rate_(sample_rate) {
  if (input.file.path == "-") return;
  recording_.emplace(input.file, sample_rate, input.segment);
  band_.emplace(recording_->samples());
}

std::string HeardSamples::narrow() const {
  return band_ ? narrow_sound(band_->hertz(sample_rate_), sample_rate_, name_) : std::string();
}

std::span<const float> HeardSamples::next(size_t most) {
  const std::span<const float> samples = recording_ ? recording_->next(most) : next_raw(most);
  if (band_) band_->add(samples.data(), samples.size());
  count_ += static_cast<int64_t>(samples.size());
  return samples;
}

std::span<const float> HeardSamples::next_raw(size_t most) {
  raw_.resize(most);
  const size_t n = std::fread(raw_.data(), sizeof(int16_t), most, stdin);
  if (std::ferror(stdin)) fail_input("standard input: cannot be read");
  const std::string_view begin(reinterpret_cast<const char*>(raw_.data()), n * sizeof(int16_t));
  for (const char* format : {"RIFF", "fLaC", "OggS"}) {
    if (count_ == 0 && begin.starts_with(format)) {
      fail_input("standard input: is a recording with a header (", format,
                 "); with --stream it is raw samples, 16 bits, one channel, at the model's rate");
    }
  }
  samples_.clear();
  for (size_t i = 0; i < n; ++i) samples_.push_back(static_cast<float>(raw_[i]) / 32768);
  return samples_;
}

namespace {

bool has_lines(PredictionFormat format) {
  return format == PredictionFormat::text || format == PredictionFormat::jsonl ||
         format == PredictionFormat::ctm;
}

template <class T>
void append(std::vector<T>& all, std::vector<T> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

StreamWriter::StreamWriter(Recognizer& model, const PredictionStyle& style, double chunk_seconds,
                           const EndpointOptions& endpoint, bool is_whole)
    : style_(style),
      by_utterance_(has_lines(style.format)),
      shows_(style.format == PredictionFormat::text && !style.named),
      stream_(model, chunk_seconds, {is_whole ? EndpointOptions{0, 0} : endpoint, {}}) {}

Transcript StreamWriter::hear(const ModelInput& input,
                              const std::function<std::span<const float>()>& next) {
  has_written_ = false;
  whole_ = {};
  try {
    for (std::span<const float> samples = next(); !samples.empty(); samples = next()) {
      const std::string text = stream_.accept(samples);
      if (shows_) show(text);
      for (const StreamedTranscript& t : stream_.ended()) take(input, t);
    }
  } catch (const InputError&) {
    stream_.finish();  // what was heard is no part of the next
    if (in_line_) show("\n");
    throw;
  }
  StreamedTranscript last = stream_.finish();
  for (const StreamedTranscript& t : stream_.ended()) {
    if (shows_) show(t.text.substr(t.told) + "\n");
    take(input, t);
  }
  // Of an input in which nothing is said there is a line too.
  if (last.text.empty() && has_written_) return std::move(whole_);
  if (shows_) show(last.text.substr(last.told) + "\n");
  take(input, std::move(last));
  return std::move(whole_);
}

void StreamWriter::show(const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  in_line_ = !text.ends_with('\n');
}

void StreamWriter::take(const ModelInput& input, StreamedTranscript t) {
  if (by_utterance_ && !shows_) {
    InputExtent extent;
    extent.seconds = std::round((t.end - t.begin) * 1e6) / 1e6;  // 2.1, not 2.0999999999999996
    extent.begin = t.begin;
    Prediction p;
    p.transcript = std::move(t);
    write_prediction(style_, Task::ctc, input, p, extent);
  } else if (!by_utterance_ && has_written_) {
    whole_.text += " " + t.text;
    append(whole_.words, std::move(t.words));
    append(whole_.characters, std::move(t.characters));
    whole_.logits = {};
  } else {
    whole_ = std::move(t);  // of text that was shown the last utterance, for a picture
  }
  has_written_ = true;
}

}  // namespace rondo
