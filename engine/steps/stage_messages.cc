#include "engine/steps/stage_messages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/cast/cast.h"

namespace rondo {
namespace {

bool narrowed(DType dtype, Wire wire) { return wire == Wire::bf16 && dtype == DType::f32; }

size_t width_on_wire(DType dtype, Wire wire) {
  return narrowed(dtype, wire) ? sizeof(bf16) : size_of(dtype);
}

// copy(value's memory, elements, narrow) for each plane's live rows, in order.
template <class Copy>
void for_planes(const BoundGraph& bound, std::span<const ValueId> values, Wire wire, Copy copy) {
  for (ValueId id : values) {
    const TensorView view = bound.view(id);
    const Value& value = bound.graph().value(id);
    RONDO_CHECK(view, "value '", value.name, "' crosses stages but has no memory");
    const Shape& shape = value.shape;
    const auto elements = static_cast<size_t>(bound.live_rows(shape) * shape.cols);
    const size_t plane = view.bytes() / static_cast<size_t>(shape.planes);
    for (int64_t p = 0; p < shape.planes; ++p) {
      copy(static_cast<std::byte*>(view.data) + static_cast<size_t>(p) * plane, elements,
           value.dtype, narrowed(value.dtype, wire));
    }
  }
}

}  // namespace

std::vector<int> producing_stages(const Graph& g) {
  std::vector<int> stage(g.values.size(), -1);
  for (const Node& node : g.nodes) {
    for (ValueId id : node.outputs) {
      if (id != no_value) stage[static_cast<size_t>(id)] = node.stage;
    }
  }
  return stage;
}

void require_neighbours(const Graph& graph) {
  const std::vector<int> produced = producing_stages(graph);
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.inputs) {
      if (id == no_value) continue;
      const Value& v = graph.value(id);
      const int from = produced[static_cast<size_t>(id)];
      RONDO_CHECK(from < 0 || std::abs(from - node.stage) <= 1, "value '", v.name,
                  "' crosses from stage ", from, " to stage ", node.stage);
      RONDO_CHECK(v.role != ValueRole::parameter || v.stage == node.stage, "parameter '", v.name,
                  "' of stage ", v.stage, " is used by stage ", node.stage);
    }
  }
}

std::vector<ValueId> crossing_values(const Graph& graph, int from, int to) {
  const std::vector<int> produced = producing_stages(graph);
  std::vector<ValueId> values;
  for (const Node& node : graph.nodes) {
    if (node.stage != to) continue;
    for (ValueId id : node.inputs) {
      if (id != no_value && produced[static_cast<size_t>(id)] == from) values.push_back(id);
    }
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

int64_t live_rows(const Graph& graph, const PackedHost& layout, const Shape& shape) {
  if (shape.axis == Axis::fixed) return shape.rows;
  if (shape.axis == Axis::sequences) return layout.extent.sequences;
  std::vector<int32_t> lengths = layout.lengths;
  for (const Level& l : graph.path_to(shape.level)) {
    if (l.column > 0) {
      lengths.assign(
          static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
          l.column);
    } else {
      for (int32_t& length : lengths) length = l.frames(length);
    }
  }
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

size_t message_bytes(const Graph& graph, const PackedHost& layout, std::span<const ValueId> values,
                     Wire wire) {
  size_t bytes = 0;
  for (ValueId id : values) {
    const Value& v = graph.value(id);
    bytes +=
        static_cast<size_t>(v.shape.planes * live_rows(graph, layout, v.shape) * v.shape.cols) *
        width_on_wire(v.dtype, wire);
  }
  return bytes;
}

void pack_values(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                 std::span<std::byte> message) {
  const Context& c = bound.context();
  const bool direct = c.device->kind() == DeviceKind::cpu;
  std::vector<float> fetched;
  size_t at = 0;
  for_planes(bound, values, wire, [&](std::byte* from, size_t n, DType dtype, bool narrow) {
    const size_t bytes = n * (narrow ? sizeof(bf16) : size_of(dtype));
    RONDO_CHECK(at + bytes <= message.size(), "a message of ", message.size(), " bytes is full");
    if (narrow) {
      const auto* wide = reinterpret_cast<const float*>(from);
      if (!direct) {
        fetched.resize(n);
        c.device->copy(*c.stream, fetched.data(), from, n * sizeof(float));
        c.stream->synchronize();
        wide = fetched.data();
      }
      for (size_t i = 0; i < n; ++i) {
        const bf16 rounded(wide[i]);
        std::memcpy(message.data() + at + i * sizeof(bf16), &rounded, sizeof(bf16));
      }
    } else {
      c.device->copy(*c.stream, message.data() + at, from, bytes);
    }
    at += bytes;
  });
  c.stream->synchronize();
  RONDO_CHECK(at == message.size(), "a message of ", message.size(), " bytes got ", at);
}

void unpack_values(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                   std::span<const std::byte> message) {
  const Context& c = bound.context();
  const bool direct = c.device->kind() == DeviceKind::cpu;
  std::vector<float> widened;
  size_t at = 0;
  for_planes(bound, values, wire, [&](std::byte* to, size_t n, DType dtype, bool narrow) {
    const size_t bytes = n * (narrow ? sizeof(bf16) : size_of(dtype));
    RONDO_CHECK(at + bytes <= message.size(), "a message of ", message.size(), " bytes is short");
    if (narrow) {
      if (!direct) widened.resize(n);
      float* const wide = direct ? reinterpret_cast<float*>(to) : widened.data();
      for (size_t i = 0; i < n; ++i) {
        bf16 rounded;
        std::memcpy(&rounded, message.data() + at + i * sizeof(bf16), sizeof(bf16));
        wide[i] = static_cast<float>(rounded);
      }
      if (!direct) {
        c.device->copy(*c.stream, to, widened.data(), n * sizeof(float));
        c.stream->synchronize();
      }
    } else {
      c.device->copy(*c.stream, to, message.data() + at, bytes);
    }
    at += bytes;
  });
  c.stream->synchronize();
  RONDO_CHECK(at == message.size(), "a message of ", message.size(), " bytes gave ", at);
}

namespace {

size_t aligned(size_t bytes) {
  return (bytes + device_message_alignment - 1) / device_message_alignment *
         device_message_alignment;
}

void cast_on_device(const Context& context, void* to, DType to_type, void* from, DType from_type,
                    size_t count) {
  const auto n = static_cast<int64_t>(count);
  CastArgs a;
  a.x = TensorView(from, from_type, {n});
  a.y = TensorView(to, to_type, {n});
  run(context, a);
}

}  // namespace

size_t device_message_bytes(const Graph& graph, const PackedHost& layout,
                            std::span<const ValueId> values, Wire wire) {
  size_t bytes = 0;
  for (ValueId id : values) {
    const Value& v = graph.value(id);
    const auto plane = static_cast<size_t>(live_rows(graph, layout, v.shape) * v.shape.cols);
    bytes += static_cast<size_t>(v.shape.planes) * aligned(plane * width_on_wire(v.dtype, wire));
  }
  return bytes;
}

size_t most_device_message_bytes(const Graph& graph, const BatchCapacity& capacity,
                                 std::span<const ValueId> values, Wire wire) {
  size_t bytes = 0;
  for (ValueId id : values) {
    const Value& v = graph.value(id);
    const auto planes = static_cast<size_t>(v.shape.planes);
    const auto elements = static_cast<size_t>(value_elements(graph, capacity, v.shape));
    bytes += planes * aligned(elements / planes * width_on_wire(v.dtype, wire));
  }
  return bytes;
}

void pack_on_device(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                    std::byte* message) {
  const Context& c = bound.context();
  for_planes(bound, values, wire, [&](std::byte* from, size_t n, DType dtype, bool narrow) {
    const size_t bytes = n * (narrow ? sizeof(bf16) : size_of(dtype));
    if (narrow && n > 0) {
      cast_on_device(c, message, DType::bf16, from, dtype, n);
    } else {
      c.device->copy(*c.stream, message, from, bytes);
    }
    message += aligned(bytes);
  });
}

void unpack_on_device(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                      const std::byte* message) {
  const Context& c = bound.context();
  for_planes(bound, values, wire, [&](std::byte* to, size_t n, DType dtype, bool narrow) {
    const size_t bytes = n * (narrow ? sizeof(bf16) : size_of(dtype));
    if (narrow && n > 0) {
      // Only read.
      cast_on_device(c, to, dtype, const_cast<std::byte*>(message), DType::bf16, n);
    } else {
      c.device->copy(*c.stream, to, message, bytes);
    }
    message += aligned(bytes);
  });
}

}  // namespace rondo
