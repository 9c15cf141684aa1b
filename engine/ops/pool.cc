// pool: frames -> sequences, by the last frame or the mean. Attribute pooling.
#include "kernels/pool/pool.h"

#include "engine/ops/bind.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

Pooling pooling_of(const Node& node) {
  return static_cast<Pooling>(node.attributes.integer("pooling"));
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "pooling reads frames, not ", to_string(x));
  return {{"pool", Shape::sequences(x.cols), g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x, "pool.dx");
  b.emit("pool_grad", {b.of(node.outputs[0])}, {dx}, node.attributes, Phase::backward, node.stage);
  b.contribute(x, dx);
}

Thunk bind(const Binder& b, const Node& node) {
  PoolArgs a;
  a.pooling = pooling_of(node);
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  PoolGradArgs a;
  a.pooling = pooling_of(node);
  a.layout = b.layout_of(node.outputs[0]);
  a.dy = b.input(node, 0);
  a.dx = b.output(node, 0);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> pool_rules() {
  static const OpRule rules[] = {{.op = "pool",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::pooled, .pooling = pooling_of},
                                  .work = operand_work},
                                 {.op = "pool_grad",
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::pooled, .pooling = pooling_of},
                                  .work = operand_work}};
  return rules;
}

}  // namespace rondo
