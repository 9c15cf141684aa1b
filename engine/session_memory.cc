// Memory of sessions: plans made for capacities, and what to say when there is too little.
#include <algorithm>
#include <cmath>

#include "engine/session_state.h"
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

// What to do when there is no memory for a plan.
std::string advice(const Graph& graph, const Context& context, const BatchCapacity& capacity) {
  const size_t free = context.device->free_memory();
  if (free == 0) return "";
  const auto fits = [&](int64_t thousandths) {
    const BatchCapacity c = scaled(capacity, static_cast<double>(thousandths) / 1000);
    const size_t bytes = plan_memory(graph, context, c).arena_bytes +
                         plan_batch_bytes(graph, c, context.device->kind());
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

BucketedPlans Session::State::make_plans(const Graph& graph, const BatchCapacity& capacity) {
  try {
    return {graph, context, capacity, *parameters};
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(e.what() + advice(graph, context, capacity));
  }
}

Plan& Session::State::plan_for(std::optional<BucketedPlans>& plans, const Graph& graph,
                               const BatchView& batch) {
  check_batch(graph, batch);  // before memory is planned by what it claims
  const BatchCapacity need = batch.extent();
  if (!plans || !plans->largest().capacity().holds(need)) {
    replace(plans, graph, plans ? BatchCapacity::merge(plans->largest().capacity(), need) : need);
  }
  return plans->plan_for(need);
}

void Session::State::replace(std::optional<BucketedPlans>& plans, const Graph& graph,
                             const BatchCapacity& capacity) {
  if (plans) stream.synchronize();  // they may be running
  plans.reset();
  plans = make_plans(graph, capacity);
  if (&plans != &train_plans) return;
  for (size_t i = in_flight; i < ring.size(); ++i) make_room(ring[(oldest + i) % ring.size()]);
}

void Session::State::make_room(InFlight& item) {
  const Value& loss = train.graph.value(train.outputs.loss);
  const auto bytes = static_cast<size_t>(value_elements(
                         train.graph, train_plans->largest().capacity(), loss.shape)) *
                     size_of(loss.dtype);
  if (item.loss_values.bytes() < bytes) {
    item.loss_values = StagingBuffer(*device, bytes, "losses");
  }
}

void Session::reserve(const BatchCapacity& capacity) {
  State& s = *state_;
  s.result.losses.reserve(static_cast<size_t>(capacity.packed.sequences));
  if (s.chunked) return s.chunked->reserve(capacity);
  if (s.train_plans && s.train_plans->largest().capacity().holds(capacity)) return;
  s.replace(s.train_plans, s.train.planned, capacity);
}

Session::Memory Session::predict_memory(const BatchCapacity& capacity) const {
  const State& s = *state_;
  Memory m;
  m.weights = s.parameters->weights().bytes();
  m.gradients = m.weights;
  m.optimizer = s.optimizer ? s.optimizer->bytes()
                            : Update::state_bytes(s.options.optimizer, s.parameters->flat_size());
  const BatchCapacity at_once = s.chunked ? s.chunked->chunk_capacity(capacity) : capacity;
  m.activations = s.chunked ? s.chunked->activation_bytes(at_once)
                            : plan_memory(s.train.planned, s.context, capacity).arena_bytes;
  m.batch = plan_batch_bytes(s.train.graph, at_once, s.device->kind());
  return m;
}

}  // namespace rondo
