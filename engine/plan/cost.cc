#include "engine/plan/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

double rows_of(const Graph& g, const Shape& shape, const BatchShape& batch) {
  switch (shape.axis) {
    case Axis::fixed:
      return static_cast<double>(shape.rows);
    case Axis::sequences:
      return batch.sequences;
    case Axis::frames:
      break;
  }
  return batch.sequences *
         std::ceil(batch.frames / static_cast<double>(g.total_factor(shape.level)));
}

double steps_of(const Graph& g, const Shape& shape, const BatchShape& batch) {
  return std::ceil(batch.steps() / static_cast<double>(g.total_factor(shape.level)));
}

double bytes_of(const Graph& g, ValueId id, const BatchShape& batch) {
  if (id == no_value) return 0;
  const Value& v = g.value(id);
  return rows_of(g, v.shape, batch) * static_cast<double>(v.shape.cols * v.shape.planes) *
         static_cast<double>(size_of(v.dtype));
}

double operand_bytes(const Graph& g, const Node& node, const BatchShape& batch) {
  double sum = 0;
  for (ValueId id : node.inputs) sum += bytes_of(g, id, batch);
  for (ValueId id : node.outputs) sum += bytes_of(g, id, batch);
  return sum;
}

// y = windows W^T, dx = windows of dy times W, dW = dy^T windows; the windows are written once and
// read once beside the operands.
NodeWork conv_work(const Graph& g, const Node& node, const BatchShape& batch) {
  const Shape& weight = g.shape(node.inputs.at(node.op == "conv_grad_weight" ? 4 : 1));
  const bool input_gradient = node.op == "conv_grad_input";
  const bool forward = node.op == "conv";
  // What is gathered, and for the frames of what.
  const Shape& from = g.shape(node.inputs.at(forward || input_gradient ? 0 : 1));
  const Shape& to = g.shape(forward || input_gradient ? node.outputs.at(0) : node.inputs.at(0));
  const double rows = rows_of(g, to, batch);
  const double window = static_cast<double>(from.cols * node.attributes.integer("kernel"));
  NodeWork w;
  w.flops = 2 * rows * static_cast<double>(weight.rows * weight.cols);
  w.bytes = operand_bytes(g, node, batch) +
            2 * rows * window * static_cast<double>(size_of(dtype_of(g, node)));
  return w;
}

NodeWork lstm_work(const Graph& g, const Node& node, const BatchShape& batch, double cache_bytes) {
  // The value whose level the layer runs at: x, gates or x.
  const ValueId at = node.inputs.at(node.op == "lstm_backward" ? 1 : 0);
  const Shape& shape = g.shape(at);
  const double rows = rows_of(g, shape, batch), steps = steps_of(g, shape, batch);
  const auto directions = static_cast<double>(node.attributes.integer("directions"));
  const auto input = static_cast<double>(node.attributes.integer("input"));
  const auto hidden = static_cast<double>(node.attributes.integer("hidden"));
  const auto projection = static_cast<double>(node.attributes.integer("projection"));
  const double output = projection > 0 ? projection : hidden;
  const double outside = 2 * rows * directions * 4 * hidden * input;
  const double inside = 2 * rows * directions * (4 * hidden * output + projection * hidden);
  NodeWork w;
  w.bytes = operand_bytes(g, node, batch);
  if (node.op == "lstm_weight_grad") {
    w.flops = outside + inside;
    return w;
  }
  const bool has_input_gradient = node.op == "lstm" || node.outputs.at(2) != no_value;
  w.flops = has_input_gradient ? outside : 0;
  w.recurrent_flops = inside;
  w.steps = steps;
  w.exchanged = steps * hidden;
  w.cells = rows * directions * hidden;
  const double weights = 4 * hidden * output * static_cast<double>(size_of(g.value(at).dtype));
  w.weight_bytes = steps * directions * weights;
  w.far_weight_bytes = weights >= cache_bytes ? w.weight_bytes : 0;
  return w;
}

}  // namespace

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

NodeWork work_of(const Graph& g, const Node& node, const BatchShape& batch, double cache_bytes) {
  if (node.op.starts_with("lstm")) return lstm_work(g, node, batch, cache_bytes);
  if (node.op.starts_with("conv")) return conv_work(g, node, batch);
  NodeWork w;
  w.bytes = operand_bytes(g, node, batch);
  if (node.op == "ctc") {
    const Shape& logits = g.shape(node.inputs.at(0));
    w.steps = steps_of(g, logits, batch);
    w.recurrent_flops = rows_of(g, logits, batch) * (2 * batch.labels + 1);
    w.bytes += bytes_of(g, node.inputs[0], batch);  // read twice
    w.exchanged = batch.sequences;
    w.cells = rows_of(g, logits, batch);
  } else if (node.op.starts_with("linear")) {
    // y = x W^T, dx = dy W, dW = dy^T x: two flops per row, input and output column.
    const bool forward = node.op == "linear";
    const ValueId weight = forward || node.op == "linear_grad_input" ? node.inputs.at(1) : no_value;
    const double rows = rows_of(g, g.shape(node.inputs[0]), batch);
    const double columns =
        weight != no_value
            ? static_cast<double>(g.shape(weight).rows * g.shape(weight).cols)
            : static_cast<double>(g.shape(node.inputs[0]).cols * g.shape(node.inputs.at(1)).cols);
    w.flops = 2 * rows * columns;
  }
  return w;
}

NodeWork load_work(const Graph& g, const BatchShape& batch) {
  NodeWork w;
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (g.values[v].role != ValueRole::input) continue;
    w.bytes += 2 * bytes_of(g, static_cast<ValueId>(v), batch);
  }
  return w;
}

int step_arrays(const OptimizerOptions& o) {
  // Weights and gradients are read and weights written; each slot is read and written.
  const bool adam = o.kind != OptimizerOptions::sgd;
  const int slots = adam ? 2 : o.momentum != 0 ? 1 : 0;
  return 3 + 2 * slots + (o.ema_decay > 0 ? 3 : 0);
}

int update_arrays(const OptimizerOptions& o) { return 2 + step_arrays(o); }

NodeWork update_work(int64_t weights, int arrays) {
  NodeWork w;
  w.bytes = 4.0 * static_cast<double>(weights) * arrays;
  return w;
}

}  // namespace rondo::plan
