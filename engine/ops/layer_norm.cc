// layer_norm: inputs x, gain [1, C], bias [1, C]; outputs y, mean, rstd. Attribute epsilon.
#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/norm/norm.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.planes == 1 && g.shape(node.inputs.at(1)).cols == x.cols, "layer_norm: input ",
              to_string(x), ", gain ", to_string(g.shape(node.inputs[1])));
  const DType t = g.value(node.inputs[0]).dtype;
  const DType statistics = t == DType::f64 ? DType::f64 : DType::f32;
  Shape per_row = x;
  per_row.height = 0;
  per_row.cols = 1;
  return {{"layer_norm", x, t},
          {"layer_norm.mean", per_row, statistics},
          {"layer_norm.rstd", per_row, statistics}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0], dy = b.of(node.outputs[0]);
  const ValueId dx = b.needs(x) ? b.like(x, "layer_norm.dx") : no_value;
  b.emit("layer_norm_grad", {x, node.inputs[1], node.outputs[1], node.outputs[2], dy},
         {dx, b.parameter_gradient(node.inputs[1]), b.parameter_gradient(node.inputs[2])}, {},
         Phase::backward, node.stage);
  b.contribute(x, dx);
}

Thunk bind(const Binder& b, const Node& node) {
  LayerNormArgs a;
  a.epsilon = static_cast<float>(node.attributes.real("epsilon"));
  a.x = b.input(node, 0);
  a.gamma = flat(b.input(node, 1));
  a.beta = flat(b.input(node, 2));
  a.y = b.output(node, 0);
  a.mean = flat(b.output(node, 1));
  a.rstd = flat(b.output(node, 2));
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

size_t grad_workspace(const Context& context, const Graph& g, const Node& node,
                      const BatchCapacity& capacity) {
  const Shape& x = g.shape(node.inputs[0]);
  return layer_norm_grad_workspace_bytes(context, value_elements(g, capacity, x) / x.cols, x.cols);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  LayerNormGradArgs a;
  a.x = b.input(node, 0);
  a.gamma = flat(b.input(node, 1));
  a.mean = flat(b.input(node, 2));
  a.rstd = flat(b.input(node, 3));
  a.dy = b.input(node, 4);
  a.dx = b.output(node, 0);
  a.dgamma = flat(b.output(node, 1));
  a.dbeta = flat(b.output(node, 2));
  a.accumulate = true;
  a.workspace = b.workspace();
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> layer_norm_rules() {
  static const OpRule rules[] = {{.op = "layer_norm",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work},
                                 {.op = "layer_norm_grad",
                                  .workspace = grad_workspace,
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{0, 4}}}};
  return rules;
}

}  // namespace rondo
