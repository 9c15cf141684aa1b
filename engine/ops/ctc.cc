// ctc: loss and gradient in one node. Input logits; outputs loss, dlogits (not wanted: loss only).
//   attributes blank, log_softmax_input (0/1), zero_infinity (0/1)
#include "kernels/ctc/ctc.h"

#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/ctc/ctc_chunk.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  const DType t = g.value(node.inputs[0]).dtype;
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "ctc reads frames, not ", to_string(x));
  const int64_t blank = node.attributes.integer("blank");
  RONDO_CHECK(blank >= 0 && blank < x.cols, "ctc: blank ", blank, " of ", x.cols, " classes");
  return {{"ctc.loss", Shape::sequences(1), t == DType::f64 ? DType::f64 : DType::f32},
          {"ctc.dlogits", x, t}};
}

void backward(GradientBuilder& b, const Node& node) {
  b.contribute(node.inputs[0], node.outputs[1]);
}

size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  const Value& x = g.value(node.inputs[0]);
  return ctc_workspace_bytes(context, level_capacity(g, capacity, x.shape.level), x.dtype,
                             x.shape.cols, capacity.max_label_length, true);
}

Thunk bind(const Binder& b, const Node& node) {
  CtcArgs a;
  a.layout = b.layout_of(node.inputs[0]);
  a.logits = b.input(node, 0);
  a.labels = b.labels();
  a.label_offsets = b.label_offsets();
  a.max_label_length = b.capacity().max_label_length;
  a.blank = static_cast<int32_t>(node.attributes.integer("blank"));
  a.input = node.attributes.integer("log_softmax_input") ? CtcInput::log_softmax : CtcInput::logits;
  a.zero_infinity = node.attributes.integer("zero_infinity") != 0;
  a.loss = flat(b.output(node, 0));
  a.grad = b.output(node, 1);
  a.workspace = b.workspace();
  return bound(b, a);
}

NodeWork work(const Graph& g, const Node& node, const BatchShape& batch) {
  const Shape& logits = g.shape(node.inputs.at(0));
  NodeWork w = operand_work(g, node, batch);
  w.bytes += bytes_of(g, node.inputs[0], batch);  // read twice
  w.steps = steps_of(g, logits, batch);
  // In cells of the lattice: a frame has so many, and costs as much as these more (on CPUs).
  constexpr double frame_cells = 64;
  w.operations = rows_of(g, logits, batch) * (2 * batch.labels + 1 + frame_cells);
  return w;
}

// linear, ctc -> linear_ctc.
std::optional<Node> fused(Graph& g, const Node& node, const Node& maker) {
  if (maker.op != "linear" || node.attributes.integer("log_softmax_input")) return std::nullopt;
  const ValueId x = maker.inputs.at(0);
  const Shape& frames = g.shape(x);
  if (frames.axis != Axis::frames || frames.planes != 1) return std::nullopt;
  const DType wide = g.value(x).dtype == DType::f64 ? DType::f64 : DType::f32;
  const int level = frames.level;
  const ValueId label_grad = g.add_activation("linear_ctc.label_grad", Shape::labels(level), wide);
  const ValueId normalizer =
      g.add_activation("linear_ctc.normalizer", Shape::frames(level, 1), wide);
  return Node{"linear_ctc",
              maker.inputs,
              {node.outputs.at(0), label_grad, normalizer},
              {{"blank", node.attributes.integer("blank")},
               {"zero_infinity", node.attributes.integer("zero_infinity")}},
              node.phase,
              node.stage};
}

// ctc -> ctc_chunk_alpha, ctc_chunk_grad.
CutLoss cut(Graph& g, const Node& node, int32_t max_label_length) {
  const ValueId logits = node.inputs[0];
  const ValueId totals = g.add_input(total_frames_input, Shape::sequences(1), DType::i32);
  const Shape border = Shape::sequences(ctc_border_width(max_label_length));
  CutLoss c;
  c.forward_in = g.add_activation("ctc.alpha_in", border, DType::f64);
  c.forward_out = g.add_activation("ctc.alpha_out", border, DType::f64);
  c.backward_in = g.add_activation("ctc.beta_in", border, DType::f64);
  c.backward_out = g.add_activation("ctc.beta_out", border, DType::f64);
  c.forward = {"ctc_chunk_alpha", {logits, totals, c.forward_in},
               {c.forward_out},   node.attributes,
               Phase::forward,    node.stage};
  c.backward = {"ctc_chunk_grad",
                {logits, totals, c.forward_in, c.backward_in},
                {node.outputs[0], node.outputs[1], c.backward_out},
                node.attributes,
                Phase::backward,
                node.stage};
  return c;
}

}  // namespace

std::span<const OpRule> ctc_rules() {
  static const OpRule rules[] = {{.op = "ctc",
                                  .infer = infer,
                                  .backward = backward,
                                  .workspace = workspace,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::loss, .cut = cut},
                                  .work = work,
                                  .in_place = {{1, 0}},
                                  .is_loss = true,
                                  .label_classes = input_columns,
                                  .fused = fused}};
  return rules;
}

}  // namespace rondo
