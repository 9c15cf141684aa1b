// linear_ctc: an output layer and its CTC loss without the logits
// (kernels/linear_ctc/linear_ctc.h). It takes the place of linear and ctc where fuse_loss of
// engine/graph/graph.h puts it.
//   inputs   x, w [classes, columns of x], bias [1, classes] or absent
//   outputs  loss, and for the gradient label_grad, normalizer
//   attributes blank, zero_infinity (0/1)
#include "kernels/linear_ctc/linear_ctc.h"

#include "engine/ops/bind.h"

namespace rondo {
namespace {

// dx, dw and dbias come of one pass over the logits, so it is on the path of the input's gradient.
void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  const ValueId dx = b.needs(x) ? b.like(x, "linear_ctc.dx") : no_value;
  const ValueId dw = b.parameter_gradient(node.inputs[1]);
  const ValueId db = b.parameter_gradient(node.inputs[2]);
  if (dx == no_value && dw == no_value && db == no_value) return;
  b.emit("linear_ctc_grad",
         {x, node.inputs[1], node.inputs[2], node.outputs.at(1), node.outputs.at(2)}, {dx, dw, db},
         node.attributes, Phase::backward, node.stage);
  if (dx != no_value) b.contribute(x, dx);
}

size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  const Value& x = g.value(node.inputs[0]);
  return linear_ctc_workspace_bytes(context, level_capacity(g, capacity, x.shape.level), x.dtype,
                                    x.shape.cols, g.shape(node.inputs[1]).rows,
                                    capacity.max_label_length);
}

void bind_common(const Binder& b, const Node& node, LinearCtc& a) {
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.w = b.input(node, 1);
  a.bias = flat(b.input(node, 2));
  a.labels = b.labels();
  a.label_offsets = b.label_offsets();
  a.max_label_length = b.capacity().max_label_length;
  a.blank = static_cast<int32_t>(node.attributes.integer("blank"));
  a.workspace = b.workspace();
}

Thunk bind(const Binder& b, const Node& node) {
  LinearCtcArgs a;
  bind_common(b, node, a);
  a.zero_infinity = node.attributes.integer("zero_infinity") != 0;
  a.loss = flat(b.output(node, 0));
  a.label_grad = b.output(node, 1);
  a.normalizer = b.output(node, 2);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  LinearCtcGradArgs a;
  bind_common(b, node, a);
  a.label_grad = b.input(node, 3);
  a.normalizer = b.input(node, 4);
  a.dx = b.output(node, 0);
  a.dw = b.output(node, 1);
  a.dbias = flat(b.output(node, 2));
  return bound(b, a);
}

int64_t classes(const Graph& g, const Node& node) { return g.shape(node.inputs.at(1)).rows; }

}  // namespace

std::span<const OpRule> linear_ctc_rules() {
  static const OpRule rules[] = {{.op = "linear_ctc",
                                  .backward = backward,
                                  .workspace = workspace,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::part},
                                  .is_loss = true,
                                  .label_classes = classes},
                                 {.op = "linear_ctc_grad",
                                  .workspace = workspace,
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::part},
                                  .label_classes = classes}};
  return rules;
}

}  // namespace rondo
