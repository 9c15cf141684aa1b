#include "engine/cut/chunked_training.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo {

ChunkedTraining::ChunkedTraining(const Graph& training, ValueId loss, const Context& context,
                                 Parameters& parameters, int32_t chunk_frames,
                                 StateGradients states)
    : training_(training),
      loss_(loss),
      context_(context),
      parameters_(parameters),
      states_(states),
      chunk_(shard_graph(training, loss, 0)) {
  RONDO_CHECK(chunk_frames >= 1, "chunks of ", chunk_frames, " frames");
  chunk_frames_ = (chunk_frames + chunk_.block - 1) / chunk_.block * chunk_.block;
  // One that holds nothing, which refuses layers that cannot be cut.
  ChunkRunner(chunk_, context, {{1, 1, 1}, 0, 0}, parameters);
}

BatchCapacity ChunkedTraining::chunk_capacity(const BatchCapacity& batch) const {
  BatchCapacity chunk = batch;
  chunk.packed.frames = std::min(batch.packed.frames, chunk_frames_);
  chunk.packed.rows = std::min(batch.packed.rows, int64_t{chunk_frames_} * batch.packed.sequences);
  return chunk;
}

size_t ChunkedTraining::activation_bytes(const BatchCapacity& chunk) const {
  const ChunkGraph graph = shard_graph(training_, loss_, chunk.max_label_length);
  return lay_out_memory(graph.graph, context_, chunk).arena_bytes;
}

void ChunkedTraining::reserve(const BatchCapacity& batch) {
  const BatchCapacity need = chunk_capacity(batch);
  if (runner_ && capacity_.holds(need)) return;
  capacity_ = BatchCapacity::merge(capacity_, need);
  runner_.reset();
  chunk_ = shard_graph(training_, loss_, capacity_.max_label_length);
  runner_ = std::make_unique<ChunkRunner>(chunk_, context_, capacity_, parameters_);
}

BatchSlice ChunkedTraining::slice_of(const BatchView& batch, int32_t index) const {
  std::vector<FrameRange> ranges;
  for (int32_t length : batch.layout->lengths) {
    const auto at = [&](int64_t chunk) {
      return static_cast<int32_t>(std::min<int64_t>(chunk * chunk_frames_, length));
    };
    ranges.push_back({at(index), at(int64_t{index} + 1)});
  }
  int64_t factor = 1;
  if (chunk_.logits != no_value) {
    factor = chunk_.graph.total_factor(chunk_.graph.shape(chunk_.logits).level);
  }
  return BatchSlice(batch, chunk_.graph, ranges, factor);
}

void ChunkedTraining::run(const BatchView& batch) {
  reserve(batch.extent());
  totals_ = {};
  losses_.clear();
  totals_.sequences = batch.layout->extent.sequences;
  totals_.frames = batch.layout->extent.rows;
  const int32_t chunks = (batch.layout->extent.frames + chunk_frames_ - 1) / chunk_frames_;
  std::vector<Border> left(static_cast<size_t>(std::max(chunks, 1)));  // of each chunk
  Border border;
  for (int32_t k = 0; k < chunks; ++k) {
    left[static_cast<size_t>(k)] = border;
    runner_->forward(slice_of(batch, k).view(), border);
  }
  border.clear();
  for (int32_t k = chunks - 1; k >= 0; --k) {
    if (k < chunks - 1) {
      runner_->forward(slice_of(batch, k).view(), left[static_cast<size_t>(k)]);
    }
    runner_->backward(border, states_);
    collect(k == 0);
  }
}

// Losses of sequences are all known to the leftmost chunk, those of frames to their own.
void ChunkedTraining::collect(bool leftmost) {
  const Value& value = chunk_.graph.value(loss_);
  const bool by_sequence = value.shape.axis == Axis::sequences;
  if (by_sequence && !leftmost) return;
  const auto rows = static_cast<size_t>(runner_->bound().live_rows(value.shape));
  std::vector<double> losses(rows);
  if (value.dtype == DType::f64) {
    runner_->bound().read(loss_, losses.data(), rows * sizeof(double));
  } else {
    std::vector<float> narrow;
    runner_->bound().append_floats(loss_, narrow);
    losses.assign(narrow.begin(), narrow.end());
  }
  for (double loss : losses) count_loss(totals_, loss);
  losses_.insert(losses_.end(), losses.begin(), losses.end());
}

}  // namespace rondo
