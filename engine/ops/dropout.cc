// dropout: attributes p, layer (keys the random numbers), channels (0: of each value by itself).
// Its gradient is the same op on dy.
#include "kernels/dropout/dropout.h"

#include "engine/ops/bind.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis != Axis::fixed && x.planes == 1, "dropout on ", to_string(x));
  return {{"dropout", x, g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  if (!b.needs(node.inputs[0])) return;
  const ValueId dx = b.like(node.inputs[0], "dropout.dx");
  b.emit("dropout", {b.of(node.outputs[0])}, {dx}, node.attributes, Phase::backward, node.stage);
  b.contribute(node.inputs[0], dx);
}

Thunk bind(const Binder& b, const Node& node) {
  DropoutArgs a;
  const Shape& x = b.graph().shape(node.inputs[0]);
  a.layout = b.layout(x.axis == Axis::frames ? x.level : 0);
  if (x.axis == Axis::sequences) a.layout.row_frame = nullptr;  // row n is sequence n
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  a.p = node.attributes.real("p");
  a.channels = node.attributes.integer("channels");
  a.layer = static_cast<uint32_t>(node.attributes.integer("layer"));
  a.step_seed = b.step_seed();
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> dropout_rules() {
  static const OpRule rules[] = {{.op = "dropout",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{0, 0}}}};
  return rules;
}

}  // namespace rondo
