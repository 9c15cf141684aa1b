// reverse_frames: the frames of every sequence in the opposite order. Its gradient is the same op
// on dy.
#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/reverse/reverse.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "reverse_frames on ", to_string(x));
  return {{"reversed", x, g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  if (!b.needs(node.inputs[0])) return;
  const ValueId dx = b.like(node.inputs[0], "reversed.dx");
  b.emit("reverse_frames", {b.of(node.outputs[0])}, {dx}, node.attributes, Phase::backward,
         node.stage);
  b.contribute(node.inputs[0], dx);
}

Thunk bind(const Binder& b, const Node& node) {
  ReverseFramesArgs a;
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> reverse_frames_rules() {
  static const OpRule rules[] = {{.op = "reverse_frames",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::whole},
                                  .work = operand_work}};
  return rules;
}

}  // namespace rondo
