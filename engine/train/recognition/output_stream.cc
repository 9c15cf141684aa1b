#include "engine/train/recognition/output_stream.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cut/chunk_runner.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

ChunkGraph graph_of(const Model& model) {
  const ModelDescription& d = model.description();
  const FeaturesConfig& f = d.config.features;
  if (d.config.task != Task::ctc)
    fail_input(model.file(), ": is not a ctc model: it writes no text");
  if (f.type == FeatureType::ready) {
    fail_input(model.file(), ": was trained on ready features, not on recordings");
  }
  if (f.type == FeatureType::image) {
    fail_input(model.file(), ": was trained on images of lines; only recordings can be streamed");
  }
  if (f.cmvn == Cmvn::utterance) {
    fail_input(model.file(),
               ": normalises each recording by its own mean (features.cmvn = \"utterance\"), which "
               "is known at its end only; train with \"global\" or \"none\" to stream");
  }
  try {
    return streaming_graph(inference_graph(d, model.device()));
  } catch (const InputError& e) {
    fail_input(model.file(), ": ", e.what());
  }
}

ChunkGraph graph_of(const Recognizer& model) {
  if (model.is_ensemble())
    fail_input(model.file(), ": is one of several models; only a model by itself can stream");
  return graph_of(model.model());
}

}  // namespace

std::string why_no_stream(const Model& model) {
  try {
    graph_of(model);
    return "";
  } catch (const InputError& e) {
    return e.what();
  }
}

struct OutputStream::State {
  State(Recognizer& model, double chunk_seconds, double most_silence);
  void accept(std::span<const float> samples, std::vector<float>& outputs);
  void finish(std::vector<float>& outputs);
  double seconds_left_out() const;

 private:
  void hear_silence(std::vector<float>& outputs);
  void hear(std::span<const float> samples, std::vector<float>& outputs);
  void take(Matrix features);
  void run(int64_t frames, std::vector<float>& outputs);

  Recognizer& model_;
  ChunkGraph graph_;
  int64_t chunk_frames_;
  int64_t frame_samples_;  // of an output frame
  std::unique_ptr<ChunkRunner> runner_;
  FeatureStream features_;
  bool is_silent_ = true;  // so many equal samples wait
  int64_t silence_ = 0, most_silence_, left_out_ = 0;
  float silence_value_ = 0;
  std::vector<float> waiting_;  // features not computed yet
  int64_t done_frames_ = 0;     // features that were
  Border border_;               // at its right end
};

OutputStream::State::State(Recognizer& model, double chunk_seconds, double most_silence)
    : model_(model),
      graph_(graph_of(model)),
      features_(FeatureExtractor(model.description().config.features)) {
  RONDO_CHECK(chunk_seconds > 0, "chunks of ", chunk_seconds, " seconds");
  RONDO_CHECK(most_silence >= 0, "silence of ", most_silence, " seconds");
  const FeaturesConfig& f = model.description().config.features;
  const double hop = f.hop_ms / 1000;
  const auto blocks = static_cast<int64_t>(std::ceil(chunk_seconds / hop / graph_.block));
  chunk_frames_ = std::max<int64_t>(blocks, 1) * graph_.block;
  frame_samples_ = std::llround(hop * f.rate) * graph_.block;
  most_silence_ = std::llround(std::min(most_silence, 1e9) * f.rate);
  BatchCapacity capacity;
  capacity.packed = {chunk_frames_, static_cast<int32_t>(chunk_frames_), 1};
  runner_ = std::make_unique<ChunkRunner>(graph_, model.session().context(), capacity,
                                          model.session().parameters());
}

void OutputStream::State::accept(std::span<const float> samples, std::vector<float>& outputs) {
  if (samples.empty()) return;
  require_samples(samples, model_.description().config.features.rate);
  if (is_silent_) {
    if (silence_ == 0) silence_value_ = samples.front();
    is_silent_ =
        std::all_of(samples.begin(), samples.end(), [&](float v) { return v == silence_value_; });
    if (is_silent_) {
      silence_ += static_cast<int64_t>(samples.size());
      return;
    }
    hear_silence(outputs);
  }
  hear(samples, outputs);
}

// There was something to hear, so that what came before it counts.
void OutputStream::State::hear_silence(std::vector<float>& outputs) {
  const int64_t too_many = std::max<int64_t>(silence_ - most_silence_, 0);
  left_out_ = too_many / frame_samples_ * frame_samples_;
  silence_ -= left_out_;
  const std::vector<float> piece(static_cast<size_t>(std::min<int64_t>(silence_, 1 << 16)),
                                 silence_value_);
  for (; silence_ > 0; silence_ -= static_cast<int64_t>(piece.size()))
    hear(std::span(piece).first(std::min(piece.size(), static_cast<size_t>(silence_))), outputs);
}

void OutputStream::State::hear(std::span<const float> samples, std::vector<float>& outputs) {
  take(features_.accept(samples));
  const int64_t dim = model_.description().sizes.features;
  while (static_cast<int64_t>(waiting_.size()) >= chunk_frames_ * dim) run(chunk_frames_, outputs);
}

void OutputStream::State::finish(std::vector<float>& outputs) {
  if (!is_silent_) take(features_.finish());
  const int64_t dim = model_.description().sizes.features;
  while (!waiting_.empty())
    run(std::min(chunk_frames_, static_cast<int64_t>(waiting_.size()) / dim), outputs);
  border_.clear();
  done_frames_ = 0;
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
  waiting_.insert(waiting_.end(), features.data.begin(), features.data.end());
}

// The first `frames` that wait.
void OutputStream::State::run(int64_t frames, std::vector<float>& outputs) {
  const int64_t dim = model_.description().sizes.features;
  const auto count = static_cast<size_t>(frames * dim);
  const int32_t lengths[] = {static_cast<int32_t>(frames)};
  const int32_t first[] = {static_cast<int32_t>(done_frames_)};
  const PackedHost layout = build_packed(lengths, {}, first);
  const BatchView::Input input{features_input, waiting_.data(), count * sizeof(float)};
  BatchView view;
  view.layout = &layout;
  view.inputs = {&input, 1};
  runner_->forward(view, border_);
  runner_->bound().append_floats(graph_.logits, outputs);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  done_frames_ += frames;
}

OutputStream::OutputStream(Recognizer& model, double chunk_seconds, double most_silence)
    : state_(std::make_unique<State>(model, chunk_seconds, most_silence)) {}
OutputStream::~OutputStream() = default;

void OutputStream::accept(std::span<const float> samples, std::vector<float>& outputs) {
  state_->accept(samples, outputs);
}
void OutputStream::finish(std::vector<float>& outputs) { state_->finish(outputs); }
double OutputStream::seconds_left_out() const { return state_->seconds_left_out(); }

}  // namespace rondo
