// cast: x in another dtype (attribute dtype). The gradient of a parameter's cast goes straight to
// the parameter's f32 gradient (GradientBuilder::parameter_gradient), so only activations' casts
// send one back.
#include "kernels/cast/cast.h"

#include "engine/ops/bind.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  return {{g.value(node.inputs.at(0)).name + ".cast", g.shape(node.inputs[0]),
           static_cast<DType>(node.attributes.integer("dtype"))}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  if (!b.needs(x) || b.graph().value(x).role == ValueRole::parameter) return;
  const ValueId dx = b.like(x, "cast.dx");
  b.emit("cast", {b.of(node.outputs[0])}, {dx},
         {{"dtype", static_cast<int64_t>(b.graph().value(x).dtype)}}, Phase::backward, node.stage);
  b.contribute(x, dx);
}

Thunk bind(const Binder& b, const Node& node) {
  CastArgs a;
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> cast_rules() {
  static const OpRule rules[] = {{.op = "cast",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .converts = true}};
  return rules;
}

}  // namespace rondo
