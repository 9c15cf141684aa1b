#include "engine/graph/work.h"

#include <cmath>

namespace rondo {

namespace {

struct Extent {
  double sequences, frames;
};

// Of a level, from so many sequences of so many frames of the input.
Extent extent_at(const Graph& g, int level, Extent e) {
  for (const Level& l : g.path_to(level)) {
    if (l.column > 0) {
      e = {e.sequences * e.frames, static_cast<double>(l.column)};
    } else {
      e.frames = std::ceil(e.frames / static_cast<double>(l.factor));
    }
  }
  return e;
}

}  // namespace

double rows_of(const Graph& g, const Shape& shape, const BatchShape& batch) {
  switch (shape.axis) {
    case Axis::fixed:
      return static_cast<double>(shape.rows);
    case Axis::sequences:
      return batch.sequences;
    case Axis::frames:
      break;
  }
  const Extent e = extent_at(g, shape.level, {batch.sequences, std::ceil(batch.frames)});
  return e.sequences * e.frames;
}

double steps_of(const Graph& g, const Shape& shape, const BatchShape& batch) {
  return extent_at(g, shape.level, {batch.sequences, std::ceil(batch.steps())}).frames;
}

double bytes_of(const Graph& g, ValueId id, const BatchShape& batch) {
  if (id == no_value) return 0;
  const Value& v = g.value(id);
  const double columns =
      static_cast<double>(v.shape.cols) * (v.shape.by_label ? 1 + batch.labels : 1);
  return rows_of(g, v.shape, batch) * columns * static_cast<double>(v.shape.planes) *
         static_cast<double>(size_of(v.dtype));
}

DType dtype_of(const Graph& graph, const Node& node) {
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (ValueId id : *ids) {
      if (id == no_value) continue;
      const Value& v = graph.value(id);
      const bool activation = v.role == ValueRole::activation || v.role == ValueRole::input;
      if (activation && (v.dtype == DType::f32 || v.dtype == DType::bf16)) return v.dtype;
    }
  }
  return DType::f32;
}

NodeWork operand_work(const Graph& g, const Node& node, const BatchShape& batch) {
  NodeWork w;
  for (ValueId id : node.inputs) w.bytes += bytes_of(g, id, batch);
  for (ValueId id : node.outputs) w.bytes += bytes_of(g, id, batch);
  return w;
}

}  // namespace rondo
