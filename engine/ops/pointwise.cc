// pointwise: activations and sums. Inputs x [, z], output y. Attribute function.
// accumulate: the sum of two gradients.
#include "kernels/pointwise/pointwise.h"

#include "engine/ops/bind.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

PointwiseFunction function_of(const Node& node) {
  return static_cast<PointwiseFunction>(node.attributes.integer("function"));
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const ValueId x = node.inputs.at(0);
  if (function_of(node) == PointwiseFunction::add) {
    RONDO_CHECK(g.shape(x) == g.shape(node.inputs.at(1)), "add: ", to_string(g.shape(x)), " and ",
                to_string(g.shape(node.inputs[1])));
  }
  return {{"pointwise", g.shape(x), g.value(x).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId dy = b.of(node.outputs[0]);
  const PointwiseFunction f = function_of(node);
  if (f == PointwiseFunction::add) {
    b.contribute(node.inputs[0], dy);
    b.contribute(node.inputs[1], dy);
    return;
  }
  RONDO_CHECK(f != PointwiseFunction::bias, "a bias of its own has no gradient; use linear");
  if (!b.needs(node.inputs[0])) return;
  const ValueId dx = b.like(node.inputs[0], "pointwise.dx");
  const bool of_input = saves_of(f) == PointwiseSaves::input;
  b.emit("pointwise_grad", {of_input ? node.inputs[0] : node.outputs[0], dy}, {dx}, node.attributes,
         Phase::backward, node.stage);
  b.contribute(node.inputs[0], dx);
}

TensorView as_matrix(TensorView v) {
  return {v.data, v.dtype, {v.numel() / v.dim(v.rank - 1), v.dim(v.rank - 1)}};
}

Thunk bind(const Binder& b, const Node& node) {
  PointwiseArgs a;
  a.function = function_of(node);
  a.x = as_matrix(b.input(node, 0));
  if (node.inputs.size() > 1) a.z = as_matrix(b.input(node, 1));
  a.y = as_matrix(b.output(node, 0));
  if (b.graph().shape(node.inputs[0]).planes == 1) a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  PointwiseGradArgs a;
  a.function = function_of(node);
  a.saved = as_matrix(b.input(node, 0));
  a.dy = as_matrix(b.input(node, 1));
  a.dx = as_matrix(b.output(node, 0));
  if (b.graph().shape(node.inputs[0]).planes == 1) a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

Thunk bind_accumulate(const Binder& b, const Node& node) {
  PointwiseArgs a;
  a.function = PointwiseFunction::add;
  a.x = as_matrix(b.input(node, 0));
  a.z = as_matrix(b.input(node, 1));
  a.y = as_matrix(b.output(node, 0));
  if (b.graph().shape(node.inputs[0]).planes == 1) a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> pointwise_rules() {
  static const OpRule rules[] = {{.op = "pointwise",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{0, 0}}},
                                 {.op = "pointwise_grad",
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{0, 1}}},
                                 {.op = "accumulate",
                                  .bind = bind_accumulate,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{0, 0}},
                                  .adds_gradients = true}};
  return rules;
}

}  // namespace rondo
