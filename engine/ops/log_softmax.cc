// log_softmax over the columns, and its gradient from y and dy.
#include "engine/ops/bind.h"
#include "kernels/softmax/softmax.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  return {{"log_softmax", g.shape(node.inputs.at(0)), g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  if (!b.needs(node.inputs[0])) return;
  const ValueId dx = b.like(node.inputs[0], "log_softmax.dx");
  b.emit("log_softmax_grad", {node.outputs[0], b.of(node.outputs[0])}, {dx}, {}, Phase::backward,
         node.stage);
  b.contribute(node.inputs[0], dx);
}

Thunk bind(const Binder& b, const Node& node) {
  LogSoftmaxArgs a;
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  LogSoftmaxGradArgs a;
  a.y = b.input(node, 0);
  a.dy = b.input(node, 1);
  a.dx = b.output(node, 0);
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> log_softmax_rules() {
  static const OpRule rules[] = {{.op = "log_softmax",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work},
                                 {.op = "log_softmax_grad",
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{0, 1}}}};
  return rules;
}

}  // namespace rondo
