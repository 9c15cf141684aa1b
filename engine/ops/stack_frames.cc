// stack_frames: frames of one level -> fewer, wider frames of another. Attributes factor, level.
#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/subsample/subsample.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "stack_frames reads frames, not ",
              to_string(x));
  const int64_t factor = node.attributes.integer("factor");
  const auto level = static_cast<int>(node.attributes.integer("level"));
  return {{"stack_frames", Shape::frames(level, x.cols * factor), g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x, "stack_frames.dx");
  b.emit("stack_frames_grad", {b.of(node.outputs[0])}, {dx}, node.attributes, Phase::backward,
         node.stage);
  b.contribute(x, dx);
}

Thunk bind(const Binder& b, const Node& node) {
  StackFramesArgs a;
  a.stack = a.stride = static_cast<int32_t>(node.attributes.integer("factor"));
  a.from = b.layout_of(node.inputs[0]);
  a.to = b.layout_of(node.outputs[0]);
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  StackFramesGradArgs a;
  a.stack = a.stride = static_cast<int32_t>(node.attributes.integer("factor"));
  a.from = b.layout_of(node.outputs[0]);
  a.to = b.layout_of(node.inputs[0]);
  a.dy = b.input(node, 0);
  a.dx = b.output(node, 0);
  return bound(b, a);
}

// A group of frames is never divided: cuts are at multiples of every level's factor.
Halo whole_groups(const Node&) { return {}; }

}  // namespace

std::span<const OpRule> stack_frames_rules() {
  static const OpRule rules[] = {{.op = "stack_frames",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::window, .halo = whole_groups},
                                  .work = operand_work},
                                 {.op = "stack_frames_grad",
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::window, .halo = whole_groups},
                                  .work = operand_work}};
  return rules;
}

}  // namespace rondo
