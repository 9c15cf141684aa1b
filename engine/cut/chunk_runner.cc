#include "engine/cut/chunk_runner.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"

namespace rondo {

ChunkRunner::ChunkRunner(const ChunkGraph& chunk, const Context& context,
                         const BatchCapacity& capacity, Parameters& parameters)
    : chunk_(chunk), graphs_(chunk.graph, context, capacity, parameters) {
  for (const RecurrentLayer& l : chunk.layers) {
    if (l.directions != 1) {
      fail_input(
          "chunks of a sequence one after the other need unidirectional layers: a "
          "bidirectional one reads the last frame first");
    }
    const auto append = [](std::vector<ValueId>& all, const std::vector<ValueId>& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    append(forward_in_, l.initial);
    append(forward_out_, l.final);
    append(backward_in_, l.final_gradient);
    append(backward_out_, l.initial_gradient);
  }
  for (const HaloLayer& h : chunk.halos) {
    if (h.right > 0) {
      fail_input("chunks of a sequence one after the other need convolutions of the past: ", h.name,
                 " reads ", h.right, h.right == 1 ? " frame" : " frames",
                 " ahead (a conv with context = \"past\" does not)");
    }
    forward_in_.push_back(h.before);
    forward_out_.push_back(h.tail);
    if (h.edges_grad == no_node) continue;
    backward_in_.push_back(h.dtail);
    backward_out_.push_back(h.dbefore_all);
  }
  of_layers_ = backward_in_.size();
  if (!chunk.pools.empty()) {
    fail_input(
        "a model that pools its frames into one (task classify or regress) cannot be "
        "computed chunk by chunk: it needs the whole sequence");
  }
  if (chunk.ctc_alpha == no_node) return;
  forward_in_.push_back(chunk.alpha_in);
  forward_out_.push_back(chunk.alpha_out);
  backward_in_.push_back(chunk.beta_in);
  backward_out_.push_back(chunk.beta_out);
}

size_t ChunkRunner::bytes_of(ValueId id) const {
  const Value& value = chunk_.graph.value(id);
  return static_cast<size_t>(bound().live_rows(value.shape) * value.shape.cols *
                             value.shape.planes) *
         size_of(value.dtype);
}

void ChunkRunner::write(const std::vector<ValueId>& values, const Border& border, size_t zeros) {
  BoundGraph& bound = graphs_.latest();
  const Context& c = bound.context();
  for (size_t i = 0; i < values.size(); ++i) {
    const TensorView view = bound.view(values[i]);
    if (!view) continue;  // nobody reads it
    if (border.empty() || i < zeros) {
      c.device->fill_bytes(*c.stream, view.data, 0, view.bytes());
    } else {
      bound.write(values[i], border[i].data(), bytes_of(values[i]));
    }
  }
  c.stream->synchronize();  // before the bytes go
}

void ChunkRunner::read(const std::vector<ValueId>& values, Border& border) const {
  const Context& c = bound().context();
  border.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    border[i].resize(bytes_of(values[i]));
    const TensorView view = bound().view(values[i]);
    const auto planes = static_cast<size_t>(chunk_.graph.shape(values[i]).planes);
    const size_t live = border[i].size() / planes;
    for (size_t p = 0; p < planes; ++p) {
      c.device->copy(*c.stream, border[i].data() + p * live,
                     static_cast<const std::byte*>(view.data) + p * (view.bytes() / planes), live);
    }
  }
  c.stream->synchronize();
}

void ChunkRunner::forward(const BatchView& batch, Border& border) {
  BoundGraph& bound = graphs_.bound_for(batch.extent());
  bound.load(batch);
  write(forward_in_, border, 0);
  bound.run_recorded(0, [&] { bound.run(Phase::forward); });
  read(forward_out_, border);
}

ChunkRunner::Piece ChunkRunner::piece_of(ValueId id) const {
  const Value& value = chunk_.graph.value(id);
  RONDO_CHECK(value.shape.axis == Axis::sequences, "value '", value.name,
              "' crosses a cut and has no row per sequence");
  return {static_cast<size_t>(value.shape.planes),
          static_cast<size_t>(value.shape.cols) * size_of(value.dtype)};
}

void ChunkRunner::forward(const BatchView& batch, std::span<Border* const> borders) {
  const size_t n = borders.size();
  if (n == 1) return forward(batch, *borders.front());
  Border all;
  if (!std::all_of(borders.begin(), borders.end(), [](const Border* b) { return b->empty(); })) {
    for (size_t v = 0; v < forward_in_.size(); ++v) {
      const auto [planes, bytes] = piece_of(forward_in_[v]);
      auto& to = all.emplace_back(planes * n * bytes);  // zeros
      for (size_t i = 0; i < n; ++i) {
        for (size_t p = 0; p < planes && !borders[i]->empty(); ++p)
          std::memcpy(&to[(p * n + i) * bytes], &(*borders[i])[v][p * bytes], bytes);
      }
    }
  }
  forward(batch, all);
  for (size_t i = 0; i < n; ++i) {
    borders[i]->resize(forward_out_.size());
    for (size_t v = 0; v < forward_out_.size(); ++v) {
      const auto [planes, bytes] = piece_of(forward_out_[v]);
      auto& to = (*borders[i])[v];
      to.resize(planes * bytes);
      for (size_t p = 0; p < planes; ++p)
        std::memcpy(&to[p * bytes], &all[v][(p * n + i) * bytes], bytes);
    }
  }
}

void ChunkRunner::backward(Border& border, StateGradients states) {
  BoundGraph& bound = graphs_.latest();
  write(backward_in_, border, states == StateGradients::cut ? of_layers_ : 0);
  bound.run_recorded(1, [&] { bound.run_backward(); });
  read(backward_out_, border);
}

}  // namespace rondo
