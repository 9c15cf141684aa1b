// ctc: loss and gradient in one node. Input logits; outputs loss, dlogits (not wanted: loss only).
//   attributes blank, log_softmax_input (0/1), zero_infinity (0/1)
#include "kernels/ctc/ctc.h"

#include "engine/ops/bind.h"
#include "engine/ops/rules_list.h"
#include "kernels/base/error.h"

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

}  // namespace

const OpRule& ctc_rule() {
  static const OpRule rule{"ctc", infer, backward, workspace, bind, {{1, 0}}, true};
  return rule;
}

}  // namespace rondo
