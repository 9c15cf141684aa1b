// Memory of models: graphs bound for capacities, and what to say when there is too little.
#include <algorithm>
#include <cmath>

#include "engine/rank_model.h"
#include "kernels/base/device.h"

namespace rondo {
namespace {

BatchCapacity scaled(const BatchCapacity& c, double factor) {
  const auto part = [factor](auto n) {
    return static_cast<decltype(n)>(std::ceil(factor * static_cast<double>(n)));
  };
  return {{std::max<int64_t>(part(c.packed.rows), c.packed.frames), c.packed.frames,
           part(c.packed.sequences)},
          c.max_label_length,
          part(c.labels)};
}

// What to do when there is no memory to bind a graph.
std::string advice(const Graph& graph, const Context& context, const BatchCapacity& capacity) {
  const size_t free = context.device->free_memory();
  if (free == 0) return "";
  const auto fits = [&](int64_t thousandths) {
    const BatchCapacity c = scaled(capacity, static_cast<double>(thousandths) / 1000);
    const size_t bytes = lay_out_memory(graph, context, c).arena_bytes +
                         predict_batch_bytes(graph, c, context.device->kind());
    return static_cast<double>(bytes) < 0.98 * static_cast<double>(free);  // pieces have gaps
  };
  if (!fits(1)) {
    return str("; not even its longest sequence, of ", capacity.packed.frames,
               " frames, would fit alone");
  }
  int64_t low = 1, high = 1000;  // low fits, high does not
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return str("; a batch of ", scaled(capacity, static_cast<double>(low) / 1000).packed.rows,
             " frames would fit (data.batch_frames)");
}

}  // namespace

void RankModel::reserve(StepRunner& runner, const BatchCapacity& capacity) {
  try {
    runner.reserve(capacity);
  } catch (const OutOfMemory& e) {
    if (!whole()) throw;
    throw OutOfMemory(e.what() + advice(runner.stage_graph(), context_, capacity));
  }
}

void RankModel::trim() {
  require_idle("trim()");
  evaluator_.reset();
  predictor_.reset();
  std::vector<float>().swap(prediction_);
  std::vector<float>().swap(result_.losses);
}

void RankModel::make_room(InFlight& item, size_t bytes) {
  if (item.losses.bytes() < bytes) item.losses = StagingBuffer(*device_, bytes, "losses");
}

void RankModel::reserve(const BatchCapacity& capacity) {
  result_.losses.reserve(static_cast<size_t>(capacity.packed.sequences));
  if (chunked_) return chunked_->reserve(capacity);
  if (capacity_.holds(capacity)) return;
  const BatchCapacity both = BatchCapacity::merge(capacity_, capacity);
  if (shards_ && both.max_label_length > capacity_.max_label_length) return make_runner(both);
  reserve(*runner_, shards_ ? shards_->capacity(both) : both);
  capacity_ = both;
  if (!whole()) return;
  const Value& loss = training_.graph.value(training_.loss);
  const auto bytes =
      static_cast<size_t>(value_elements(training_.graph, both, loss.shape)) * size_of(loss.dtype);
  for (size_t i = in_flight_; i < ring_.size(); ++i) {
    make_room(ring_[(oldest_ + i) % ring_.size()], bytes);
  }
}

Session::Memory RankModel::memory() const {
  Session::Memory m;
  m.weights = parameters_->weights().bytes();
  m.gradients = parameters_->gradients().bytes();
  m.optimizer = update_->bytes();
  m.activations =
      chunked_ ? chunked_->arena_bytes() : runner_->arena_bytes() + runner_->message_bytes();
  m.batch = runner_->batch_bytes();
  return m;
}

Session::Memory RankModel::predict_memory(const BatchCapacity& capacity) const {
  RONDO_CHECK(whole(), "a prediction for a part of a model");
  Session::Memory m;
  m.weights = parameters_->weights().bytes();
  m.gradients = m.weights;
  m.optimizer = update_ ? update_->bytes()
                        : Update::state_bytes(options_.optimizer, parameters_->flat_size());
  const BatchCapacity at_once = chunked_ ? chunked_->chunk_capacity(capacity) : capacity;
  m.activations = chunked_ ? chunked_->activation_bytes(at_once)
                           : lay_out_memory(runner_->stage_graph(), context_, capacity).arena_bytes;
  m.batch = predict_batch_bytes(training_.graph, at_once, device_->kind());
  return m;
}

}  // namespace rondo
