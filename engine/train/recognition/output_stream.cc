#include "engine/train/recognition/output_stream.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "engine/train/model/open_data.h"
#include "engine/train/recognition/streamed_chunks.h"
#include "kernels/base/error.h"

namespace rondo {

std::string why_no_stream(const Model& model) {
  try {
    streaming_graph_of(model);
    return "";
  } catch (const InputError& e) {
    return e.what();
  }
}

struct OutputStream::State {
  State(Recognizer& model, double chunk_seconds, double most_silence);
  // Keeps what is to be heard, which must stay until fill() says that there is no whole chunk left.
  void hear(std::span<const float> samples);
  // Features until a chunk of them waits. False: there are not so many samples.
  bool fill();
  void finish(std::vector<float>& outputs);
  double seconds_left_out() const;
  void require(std::span<const float> samples) const;

  std::shared_ptr<StreamedChunks> chunks;
  StreamedChunks::Stream stream;

 private:
  void take(Matrix features);
  int64_t waiting_frames() const {
    return static_cast<int64_t>(stream.waiting.size()) / model_.description().sizes.features;
  }

  Recognizer& model_;
  int64_t frame_samples_;  // of an output frame
  FeatureStream features_;
  bool is_silent_ = true;  // so many equal samples wait
  int64_t silence_ = 0, most_silence_, left_out_ = 0;
  std::vector<float> silent_piece_;
  std::span<const float> unheard_;
};

OutputStream::State::State(Recognizer& model, double chunk_seconds, double most_silence)
    : chunks(StreamedChunks::of(model, chunk_seconds)),
      model_(model),
      features_(FeatureExtractor(model.description().config.features)) {
  RONDO_CHECK(most_silence >= 0, "silence of ", most_silence, " seconds");
  const FeaturesConfig& f = model.description().config.features;
  frame_samples_ = std::llround(f.hop_ms / 1000 * f.rate) * chunks->block();
  most_silence_ = std::llround(std::min(most_silence, 1e9) * f.rate);
}

void OutputStream::State::require(std::span<const float> samples) const {
  require_samples(samples, model_.description().config.features.rate);
}

void OutputStream::State::hear(std::span<const float> samples) {
  if (samples.empty()) return;
  if (is_silent_) {
    if (silence_ == 0) silent_piece_ = {samples.front()};
    const float value = silent_piece_.front();
    is_silent_ = std::all_of(samples.begin(), samples.end(), [&](float v) { return v == value; });
    if (is_silent_) {
      silence_ += static_cast<int64_t>(samples.size());
      return;
    }
    // There is something to hear, so that what came before it counts.
    const int64_t too_many = std::max<int64_t>(silence_ - most_silence_, 0);
    left_out_ = too_many / frame_samples_ * frame_samples_;
    silence_ -= left_out_;
    silent_piece_.assign(static_cast<size_t>(std::min<int64_t>(silence_, 1 << 16)), value);
  }
  unheard_ = samples;
}

bool OutputStream::State::fill() {
  while (waiting_frames() < chunks->frames()) {
    std::span<const float> piece;
    if (!is_silent_ && silence_ > 0) {
      piece = std::span(silent_piece_)
                  .first(std::min(silent_piece_.size(), static_cast<size_t>(silence_)));
      silence_ -= static_cast<int64_t>(piece.size());
    } else {
      piece = std::exchange(unheard_, {});
    }
    if (piece.empty()) return false;
    take(features_.accept(piece));
  }
  return true;
}

void OutputStream::State::finish(std::vector<float>& outputs) {
  if (!is_silent_) take(features_.finish());
  const StreamedChunks::Part part{&stream, &outputs};
  while (waiting_frames() > 0)
    chunks->run({&part, 1}, std::min(chunks->frames(), waiting_frames()));
  stream = {};
  is_silent_ = true;
  silence_ = left_out_ = 0;
}

double OutputStream::State::seconds_left_out() const {
  return static_cast<double>(left_out_) / model_.description().config.features.rate;
}

void OutputStream::State::take(Matrix features) {
  const ModelDescription& d = model_.description();
  if (features.frames == 0) return;
  if (!d.mean.empty()) apply({d.mean, d.inverse_std}, features);
  stream.waiting.insert(stream.waiting.end(), features.data.begin(), features.data.end());
}

OutputStream::OutputStream(Recognizer& model, double chunk_seconds, double most_silence)
    : state_(std::make_unique<State>(model, chunk_seconds, most_silence)) {}
OutputStream::~OutputStream() = default;

void OutputStream::accept(std::span<const float> samples, std::vector<float>& outputs) {
  const Sound sound{this, samples, &outputs};
  accept({&sound, 1});
}

void OutputStream::accept(std::span<const Sound> sounds) {
  std::set<const OutputStream*> streams;
  for (const Sound& s : sounds) {
    if (!streams.insert(s.stream).second)
      fail_input("stream ", streams.size() + 1, " of ", sounds.size(), ": is there twice");
    try {
      s.stream->state_->require(s.samples);
    } catch (const InputError& e) {
      if (sounds.size() == 1) throw;
      fail_input("stream ", streams.size(), " of ", sounds.size(), ": ", e.what());
    }
  }
  for (const Sound& s : sounds) s.stream->state_->hear(s.samples);
  // Those whose chunk is whole, together with others of the same chunks.
  std::map<StreamedChunks*, std::vector<StreamedChunks::Part>> ready;
  do {
    ready.clear();
    for (const Sound& s : sounds) {
      State& state = *s.stream->state_;
      if (state.fill()) ready[state.chunks.get()].push_back({&state.stream, s.outputs});
    }
    for (const auto& [chunks, parts] : ready) chunks->run(parts, chunks->frames());
  } while (!ready.empty());
}

void OutputStream::finish(std::vector<float>& outputs) { state_->finish(outputs); }
double OutputStream::seconds_left_out() const { return state_->seconds_left_out(); }

}  // namespace rondo
