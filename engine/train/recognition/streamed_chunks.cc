#include "engine/train/recognition/streamed_chunks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "engine/session.h"
#include "engine/train/model/build_model.h"
#include "engine/train/recognition/recognizer.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t most_together = 64;  // more streams need more memory, and hardly less time each

}  // namespace

ChunkGraph streaming_graph_of(const Model& model) {
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

std::shared_ptr<StreamedChunks> StreamedChunks::of(Recognizer& model, double seconds) {
  RONDO_CHECK(seconds > 0, "chunks of ", seconds, " seconds");
  if (model.is_ensemble())
    fail_input(model.file(), ": is one of several models; only a model by itself can stream");
  std::weak_ptr<StreamedChunks>& kept = shared_chunks(model).by_seconds[seconds];
  if (std::shared_ptr<StreamedChunks> chunks = kept.lock()) return chunks;
  ChunkGraph graph = streaming_graph_of(model.model());
  const double hop = model.description().config.features.hop_ms / 1000;
  const auto blocks = static_cast<int64_t>(std::ceil(seconds / hop / graph.block));
  const int64_t frames = std::max<int64_t>(blocks, 1) * graph.block;
  const auto chunks = std::make_shared<StreamedChunks>(model, std::move(graph), frames);
  kept = chunks;
  return chunks;
}

StreamedChunks::StreamedChunks(Recognizer& model, ChunkGraph graph, int64_t frames)
    : model_(model), graph_(std::move(graph)), frames_(frames) {
  hold(1);
}

void StreamedChunks::hold(int32_t streams) {
  if (streams <= held_) return;
  int32_t most = std::max(held_, 1);
  while (most < streams) most *= 2;
  BatchCapacity capacity;
  capacity.packed = {frames_ * most, static_cast<int32_t>(frames_), most};
  Session& session = model_.session();
  runner_.reset();
  held_ = 0;  // until there is memory
  runner_ =
      std::make_unique<ChunkRunner>(graph_, session.context(), capacity, session.parameters());
  held_ = most;
}

void StreamedChunks::run(std::span<const Part> parts, int64_t frames) {
  RONDO_CHECK(0 < frames && frames <= frames_, frames, " frames of a chunk of ", frames_);
  while (!parts.empty()) {
    const size_t n = std::min(parts.size(), most_together);
    run_together(parts.first(n), frames);
    parts = parts.subspan(n);
  }
}

// In a packed batch of sequences of one length, row t * n + i is frame t of sequence i.
void StreamedChunks::run_together(std::span<const Part> parts, int64_t frames) {
  const size_t n = parts.size();
  const auto columns = static_cast<size_t>(model_.description().sizes.features);
  hold(static_cast<int32_t>(n));
  const std::vector<int32_t> lengths(n, static_cast<int32_t>(frames));
  std::vector<int32_t> first;
  std::vector<Border*> borders;
  inputs_.resize(static_cast<size_t>(frames) * n * columns);
  for (size_t i = 0; i < n; ++i) {
    Stream& s = *parts[i].stream;
    first.push_back(static_cast<int32_t>(s.done_frames));
    borders.push_back(&s.border);
    for (size_t t = 0; t < static_cast<size_t>(frames); ++t)
      std::copy_n(s.waiting.data() + t * columns, columns, inputs_.data() + (t * n + i) * columns);
  }
  const PackedHost layout = build_packed(lengths, {}, first);
  const BatchView::Input input{features_input, inputs_.data(), inputs_.size() * sizeof(float)};
  BatchView view;
  view.layout = &layout;
  view.inputs = {&input, 1};
  runner_->forward(view, borders);
  outputs_.clear();
  runner_->bound().append_floats(graph_.logits, outputs_);
  const auto classes = static_cast<size_t>(graph_.graph.shape(graph_.logits).cols);
  for (size_t i = 0; i < n; ++i) {
    Stream& s = *parts[i].stream;
    for (size_t row = i * classes; row < outputs_.size(); row += n * classes) {
      parts[i].outputs->insert(parts[i].outputs->end(), outputs_.data() + row,
                               outputs_.data() + row + classes);
    }
    s.waiting.erase(
        s.waiting.begin(),
        s.waiting.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(frames) * columns));
    s.done_frames += frames;
  }
}

}  // namespace rondo
