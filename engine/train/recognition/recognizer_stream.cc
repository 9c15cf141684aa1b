#include "engine/train/recognition/recognizer_stream.h"

#include <limits>
#include <utility>

#include "engine/train/recognition/output_stream.h"

namespace rondo {
namespace {

constexpr double most_silence = 10;  // seconds of digital silence before the first sound

bool has_end(const EndpointOptions& o) { return o.silence > 0 || o.longest > 0; }

}  // namespace

struct RecognizerStream::State {
  State(Recognizer& model, double chunk_seconds, const StreamOptions& o)
      : classes(model.vocabulary().classes()),
        decoder(o.decoder),
        sound(model, chunk_seconds,
              has_end(o.endpoint) ? most_silence : std::numeric_limits<double>::infinity()),
        text(model.vocabulary(), decoder ? &*decoder : model.decoder(), model.frame_seconds(),
             model.confidence(), o.endpoint) {}

  // The outputs that have become known, as text.
  std::string take() {
    const auto frames = static_cast<int32_t>(outputs.size() / classes);
    std::string found = text.accept(outputs.data(), frames);
    outputs.clear();
    return found;
  }

  const size_t classes;
  const std::optional<Decoder> decoder;
  OutputStream sound;
  TranscriptStream text;
  std::vector<float> outputs;
  double left_out = 0;
};

RecognizerStream::RecognizerStream(Recognizer& model, double chunk_seconds,
                                   const StreamOptions& options)
    : state_(std::make_unique<State>(model, chunk_seconds, options)) {}
RecognizerStream::~RecognizerStream() = default;

std::string RecognizerStream::accept(std::span<const float> samples) {
  const Sound sound{this, samples};
  return accept({&sound, 1}).front();
}

std::vector<std::string> RecognizerStream::accept(std::span<const Sound> sounds) {
  std::vector<OutputStream::Sound> heard;
  for (const Sound& s : sounds) {
    State& state = *s.stream->state_;
    heard.push_back({&state.sound, s.samples, &state.outputs});
  }
  OutputStream::accept(heard);
  std::vector<std::string> texts;
  for (const Sound& sound : sounds) {
    State& s = *sound.stream->state_;
    const double left_out = s.sound.seconds_left_out();
    s.text.skip(left_out - std::exchange(s.left_out, left_out));
    texts.push_back(s.take());
  }
  return texts;
}

const std::vector<StreamedTranscript>& RecognizerStream::ended() const {
  return state_->text.ended();
}

TranscriptStream::Partial RecognizerStream::partial() const { return state_->text.partial(); }

StreamedTranscript RecognizerStream::finish() {
  State& s = *state_;
  s.sound.finish(s.outputs);
  const std::string untold = s.take();
  s.left_out = 0;
  StreamedTranscript last = s.text.finish();
  last.told = s.text.ended().empty() ? last.told - untold.size() : 0;
  return last;
}

}  // namespace rondo
