#include "engine/train/recognition/recognizer_stream.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cut/chunk_runner.h"
#include "engine/text/greedy.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

ChunkGraph graph_of(Recognizer& model) {
  if (model.is_ensemble())
    fail_input(model.file(), ": is one of several models; only a model by itself can stream");
  const FeaturesConfig& f = model.description().config.features;
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
    return streaming_graph(model.session().evaluation_graph());
  } catch (const InputError& e) {
    fail_input(model.file(), ": ", e.what());
  }
}

}  // namespace

struct RecognizerStream::State {
  State(Recognizer& model, double chunk_seconds);
  std::string accept(std::span<const float> samples);
  Transcript finish();

 private:
  void hear(std::span<const float> samples);
  void take(Matrix features);
  void run(int64_t frames);
  std::string new_text();
  std::string new_text_of_search(const float* scores, int32_t frames);

  Recognizer& model_;
  ChunkGraph graph_;
  int64_t chunk_frames_;
  std::unique_ptr<ChunkRunner> runner_;
  FeatureStream features_;
  // Digital silence alone says nothing: so many equal samples wait until there is anything else.
  bool is_silent_ = true;
  int64_t silence_ = 0;
  float silence_value_ = 0;
  std::vector<float> waiting_;  // features not computed yet
  int64_t done_frames_ = 0;     // features that were
  Border border_;               // at its right end
  std::vector<float> logits_;   // of the whole recording
  size_t decoded_ = 0;          // of them, as text
  int32_t last_class_ = 0;      // of the last decoded frame
  bool has_text_ = false, border_waits_ = false;
  std::optional<DecoderStream> search_;  // where the model has a decoder
  size_t shown_ = 0;                     // bytes of its text
};

RecognizerStream::State::State(Recognizer& model, double chunk_seconds)
    : model_(model),
      graph_(graph_of(model)),
      features_(FeatureExtractor(model.description().config.features)) {
  RONDO_CHECK(chunk_seconds > 0, "chunks of ", chunk_seconds, " seconds");
  const double hop = model.description().config.features.hop_ms / 1000;
  const auto blocks = static_cast<int64_t>(std::ceil(chunk_seconds / hop / graph_.block));
  chunk_frames_ = std::max<int64_t>(blocks, 1) * graph_.block;
  BatchCapacity capacity;
  capacity.packed = {chunk_frames_, static_cast<int32_t>(chunk_frames_), 1};
  if (model.decoder()) search_.emplace(*model.decoder());
  runner_ = std::make_unique<ChunkRunner>(graph_, model.session().context(), capacity,
                                          model.session().parameters());
}

std::string RecognizerStream::State::accept(std::span<const float> samples) {
  if (samples.empty()) return "";
  if (is_silent_) {
    if (silence_ == 0) silence_value_ = samples.front();
    is_silent_ =
        std::all_of(samples.begin(), samples.end(), [&](float v) { return v == silence_value_; });
    if (is_silent_) {
      silence_ += static_cast<int64_t>(samples.size());
      return "";
    }
    // There was something to hear, so that what came before it counts.
    const std::vector<float> piece(static_cast<size_t>(std::min<int64_t>(silence_, 1 << 16)),
                                   silence_value_);
    for (; silence_ > 0; silence_ -= static_cast<int64_t>(piece.size()))
      hear(std::span(piece).first(std::min(piece.size(), static_cast<size_t>(silence_))));
  }
  hear(samples);
  return new_text();
}

void RecognizerStream::State::hear(std::span<const float> samples) {
  take(features_.accept(samples));
  const int64_t dim = model_.description().sizes.features;
  while (static_cast<int64_t>(waiting_.size()) >= chunk_frames_ * dim) run(chunk_frames_);
}

Transcript RecognizerStream::State::finish() {
  if (!is_silent_) take(features_.finish());
  const int64_t dim = model_.description().sizes.features;
  while (!waiting_.empty()) {
    run(std::min(chunk_frames_, static_cast<int64_t>(waiting_.size()) / dim));
  }
  Transcript t = model_.decode(std::move(logits_));
  logits_.clear();
  border_.clear();
  has_text_ = border_waits_ = false;
  done_frames_ = 0;
  decoded_ = 0;
  last_class_ = 0;
  shown_ = 0;
  is_silent_ = true;
  silence_ = 0;
  if (search_) search_.emplace(*model_.decoder());
  return t;
}

void RecognizerStream::State::take(Matrix features) {
  const ModelDescription& d = model_.description();
  if (features.frames == 0) return;
  if (!d.mean.empty()) apply({d.mean, d.inverse_std}, features);
  waiting_.insert(waiting_.end(), features.data.begin(), features.data.end());
}

// The first `frames` that wait.
void RecognizerStream::State::run(int64_t frames) {
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
  runner_->bound().append_floats(graph_.logits, logits_);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  done_frames_ += frames;
}

std::string RecognizerStream::State::new_text() {
  const int64_t classes = model_.description().sizes.outputs;
  const auto frames =
      static_cast<int32_t>((logits_.size() - decoded_) / static_cast<size_t>(classes));
  if (frames == 0) return "";
  if (search_) {
    const size_t first = std::exchange(decoded_, logits_.size());
    return new_text_of_search(logits_.data() + first, frames);
  }
  const std::vector<TimedLabel> labels =
      greedy_ctc(logits_.data() + decoded_, frames, static_cast<int32_t>(classes));
  std::string text;
  for (const TimedLabel& l : labels) {
    // A label that goes on from the chunk before was written there.
    if (l.first_frame == 0 && l.label == last_class_) continue;
    std::string symbol = model_.alphabet().symbols().at(static_cast<size_t>(l.label) - 1);
    const bool is_border = symbol.back() == ' ';
    if (is_border) symbol.pop_back();
    if (!symbol.empty()) {
      if (border_waits_) text += ' ';
      text += symbol;
      has_text_ = true;
    }
    // Written with the next word: there is none at either end of a text, nor several in a row.
    border_waits_ = has_text_ && is_border;
  }
  decoded_ = logits_.size();
  last_class_ = !labels.empty() && labels.back().end_frame == frames ? labels.back().label : 0;
  return text;
}

std::string RecognizerStream::State::new_text_of_search(const float* scores, int32_t frames) {
  search_->accept(scores, frames);
  const std::string stable = search_->partial().stable;
  return stable.substr(std::exchange(shown_, stable.size()));
}

RecognizerStream::RecognizerStream(Recognizer& model, double chunk_seconds)
    : state_(std::make_unique<State>(model, chunk_seconds)) {}

RecognizerStream::~RecognizerStream() = default;

std::string RecognizerStream::accept(std::span<const float> samples) {
  return state_->accept(samples);
}

Transcript RecognizerStream::finish() { return state_->finish(); }

}  // namespace rondo
