#include "engine/parallel/chunk_runner.h"

#include "kernels/base/error.h"

namespace rondo {

ChunkRunner::ChunkRunner(const ChunkGraph& chunk, const Context& context,
                         const BatchCapacity& capacity, Parameters& parameters)
    : chunk_(chunk), plan_(chunk.graph, context, capacity, parameters) {
  for (const RecurrentLayer& layer : chunk.layers) {
    RONDO_CHECK(layer.directions == 1, "chunks in turn need unidirectional layers");
  }
}

std::vector<ValueId> ChunkRunner::values(ValueId RecurrentLayer::*h,
                                         ValueId RecurrentLayer::*c) const {
  std::vector<ValueId> all;
  for (const RecurrentLayer& layer : chunk_.layers) {
    all.push_back(layer.*h);
    all.push_back(layer.*c);
  }
  return all;
}

void ChunkRunner::write(const std::vector<ValueId>& values, const LayerStates& states) {
  const Graph& g = chunk_.graph;
  std::vector<std::byte> zeros;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!plan_.view(values[i])) continue;  // nobody reads it
    if (states.empty()) {
      const Value& value = g.value(values[i]);
      zeros.assign(static_cast<size_t>(plan_.live_rows(value.shape) * value.shape.cols) *
                       size_of(value.dtype),
                   std::byte{0});
    }
    const std::vector<std::byte>& from = states.empty() ? zeros : states.at(i);
    plan_.write(values[i], from.data(), from.size());
  }
  plan_.context().stream->synchronize();  // before `zeros` goes
}

void ChunkRunner::read(const std::vector<ValueId>& values, LayerStates& states) const {
  const Graph& g = chunk_.graph;
  states.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = g.value(values[i]);
    states[i].resize(static_cast<size_t>(plan_.live_rows(value.shape) * value.shape.cols) *
                     size_of(value.dtype));
    plan_.read(values[i], states[i].data(), states[i].size());
  }
}

void ChunkRunner::forward(const BatchView& batch, LayerStates& states) {
  plan_.load(batch);
  write(values(&RecurrentLayer::h0, &RecurrentLayer::c0), states);
  plan_.run(Phase::forward);
  read(values(&RecurrentLayer::hn, &RecurrentLayer::cn), states);
}

void ChunkRunner::backward(LayerStates& states) {
  write(values(&RecurrentLayer::dhn, &RecurrentLayer::dcn), states);
  plan_.run_backward();
  read(values(&RecurrentLayer::dh0, &RecurrentLayer::dc0), states);
}

void ChunkRunner::append_floats(ValueId id, std::vector<float>& out) const {
  const Value& value = chunk_.graph.value(id);
  const auto n = static_cast<size_t>(plan_.live_rows(value.shape) * value.shape.cols);
  const size_t before = out.size();
  out.resize(before + n);
  if (value.dtype == DType::f32) return plan_.read(id, out.data() + before, n * sizeof(float));
  visit_floating(value.dtype, [&]<class T>(T) {
    std::vector<T> stored(n);
    plan_.read(id, stored.data(), n * sizeof(T));
    for (size_t i = 0; i < n; ++i) out[before + i] = static_cast<float>(stored[i]);
  });
}

}  // namespace rondo
