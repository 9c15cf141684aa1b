#include "engine/decode/transcript/transcript_stream.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double least_silence = 0.2;  // seconds that end an utterance which has become long

void shift(TimedText& text, double seconds) {
  for (auto* tokens : {&text.characters, &text.words}) {
    for (TimedText::Token& token : *tokens) {
      token.begin += seconds;
      token.end += seconds;
    }
  }
}

}  // namespace

struct TranscriptStream::State {
  State(const Vocabulary& v, const Decoder* d, double seconds, Confidence c,
        const EndpointOptions& o);

  bool is_silent(int32_t label) const;
  bool is_over() const;
  void add(const float* row);
  std::string final_text() const;
  std::string new_text();
  StreamedTranscript end();

  const Vocabulary& vocabulary;
  const double frame_seconds;
  const Confidence confidence;
  const EndpointOptions options;
  std::optional<DecoderStream> search;

  std::vector<StreamedTranscript> ended;
  int64_t frame = 0;  // the next one, from the beginning
  double begin = 0;   // of the utterance
  // Of the utterance:
  std::vector<float> logits;
  std::vector<int32_t> labels;  // that its frames' best classes write; without a search
  int32_t best = 0;             // class of the last frame
  int32_t silent_frames = 0;    // at its end
  bool has_speech = false;
  size_t shown = 0;  // bytes of its text
};

TranscriptStream::State::State(const Vocabulary& v, const Decoder* d, double seconds, Confidence c,
                               const EndpointOptions& o)
    : vocabulary(v), frame_seconds(seconds), confidence(c), options(o), best(v.blank()) {
  RONDO_CHECK(o.silence >= 0 && o.longest >= 0, "silence is ", o.silence, ", longest ", o.longest);
  RONDO_CHECK(seconds > 0, "frames of ", seconds, " seconds");
  if (d) {
    require_fit(*d, v);
    search.emplace(*d);
  }
}

bool TranscriptStream::State::is_silent(int32_t label) const {
  return label == vocabulary.blank() || label == vocabulary.separator() ||
         !vocabulary.token(label).is_written;
}

void TranscriptStream::State::add(const float* row) {
  const auto classes = static_cast<size_t>(vocabulary.classes());
  const int32_t before = std::exchange(best, 0);
  for (size_t c = 0; c < classes; ++c) {
    RONDO_CHECK(!std::isnan(row[c]), "frame ", frame, " holds a NaN score");
    if (row[c] > row[best]) best = static_cast<int32_t>(c);
  }
  ++frame;
  logits.insert(logits.end(), row, row + classes);
  silent_frames = is_silent(best) ? silent_frames + 1 : 0;
  has_speech |= silent_frames == 0;
  if (search) {
    search->accept(row, 1);
  } else if (best != vocabulary.blank() && best != before && vocabulary.token(best).is_written) {
    labels.push_back(best);
  }
}

bool TranscriptStream::State::is_over() const {
  const double length =
      static_cast<double>(logits.size() / static_cast<size_t>(vocabulary.classes())) *
      frame_seconds;
  const bool is_long = options.longest > 0 && length >= options.longest;
  if (is_long && (silent_frames > 0 || length >= 2 * options.longest)) return true;
  if (options.silence == 0) return false;
  double needed = options.silence;
  if (options.longest > 0 && has_speech) {
    const double share = std::min(1.0, 2 * (1 - length / options.longest));
    needed = std::min(needed, std::max(needed * share, least_silence));
  }
  // A thousandth of a frame for rounding.
  return silent_frames > 0 && (silent_frames + 1e-3) * frame_seconds >= needed;
}

std::string TranscriptStream::State::final_text() const {
  if (search) return search->partial().stable;
  // More bytes may make another character of these.
  size_t count = labels.size();
  while (count > 0 && vocabulary.token(labels[count - 1]).is_byte) --count;
  return vocabulary.text(std::span(labels).first(count));
}

std::string TranscriptStream::State::new_text() {
  const std::string text = final_text();
  return text.size() > shown ? text.substr(std::exchange(shown, text.size())) : "";
}

StreamedTranscript TranscriptStream::State::end() {
  StreamedTranscript t;
  const auto frames = logits.size() / static_cast<size_t>(vocabulary.classes());
  static_cast<Transcript&>(t) =
      search ? transcript_of(std::move(logits), vocabulary, search->finish(), frame_seconds,
                             confidence)
             : transcript_of(std::move(logits), vocabulary, nullptr, frame_seconds, confidence);
  t.told = std::exchange(shown, 0);
  t.begin = begin;
  t.end = begin + static_cast<double>(frames) * frame_seconds;
  shift(t, begin);
  for (Transcript::Alternative& a : t.alternatives) shift(a, begin);
  begin = t.end;
  logits.clear();
  labels.clear();
  best = vocabulary.blank();
  silent_frames = 0;
  has_speech = false;
  return t;
}

TranscriptStream::TranscriptStream(const Vocabulary& vocabulary, const Decoder* decoder,
                                   double frame_seconds, Confidence confidence,
                                   const EndpointOptions& options)
    : state_(std::make_unique<State>(vocabulary, decoder, frame_seconds, confidence, options)) {}
TranscriptStream::~TranscriptStream() = default;
TranscriptStream::TranscriptStream(TranscriptStream&&) noexcept = default;
TranscriptStream& TranscriptStream::operator=(TranscriptStream&&) noexcept = default;

std::string TranscriptStream::accept(const float* scores, int32_t frames) {
  RONDO_CHECK(frames >= 0, frames, " frames");
  State& s = *state_;
  s.ended.clear();
  std::string text;
  for (int32_t t = 0; t < frames; ++t) {
    s.add(scores + static_cast<int64_t>(t) * s.vocabulary.classes());
    if (!s.is_over()) continue;
    StreamedTranscript over = s.end();
    if (over.text.empty()) continue;
    text += over.text.substr(over.told) + "\n";
    s.ended.push_back(std::move(over));
  }
  return text + s.new_text();
}

const std::vector<StreamedTranscript>& TranscriptStream::ended() const { return state_->ended; }

TranscriptStream::Partial TranscriptStream::partial() const {
  const State& s = *state_;
  Partial p;
  p.silence = s.silent_frames * s.frame_seconds;
  if (s.search) {
    DecoderStream::Partial found = s.search->partial();
    p.stable = std::move(found.stable);
    p.text = std::move(found.text);
  } else {
    p.stable = s.final_text();
    p.text = s.vocabulary.text(s.labels);
  }
  return p;
}

void TranscriptStream::skip(double seconds) { state_->begin += seconds; }

StreamedTranscript TranscriptStream::finish() {
  State& s = *state_;
  StreamedTranscript t = s.end();
  s.frame = 0;
  s.begin = 0;
  return t;
}

}  // namespace rondo
