// cross_entropy and mse: inputs x, targets; outputs loss, dx (not wanted: loss only).
#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/loss/loss.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer_loss(const Graph& g, const Node& node, bool same_columns) {
  const Shape& x = g.shape(node.inputs.at(0));
  Shape loss = x;
  loss.cols = 1;
  const Shape& targets = g.shape(node.inputs.at(1));
  RONDO_CHECK(targets == (same_columns ? x : loss), node.op, ": prediction ", to_string(x),
              ", targets ", to_string(targets));
  const DType t = g.value(node.inputs[0]).dtype;
  return {{node.op + ".loss", loss, t == DType::f64 ? DType::f64 : DType::f32},
          {node.op + ".dx", x, t}};
}

std::vector<InferredValue> infer_cross_entropy(const Graph& g, const Node& node) {
  return infer_loss(g, node, false);
}
std::vector<InferredValue> infer_mse(const Graph& g, const Node& node) {
  return infer_loss(g, node, true);
}

void backward(GradientBuilder& b, const Node& node) {
  b.contribute(node.inputs[0], node.outputs[1]);
}

Thunk bind_cross_entropy(const Binder& b, const Node& node) {
  CrossEntropyArgs a;
  a.logits = b.input(node, 0);
  a.targets = b.input(node, 1).as<int32_t>();
  a.loss = flat(b.output(node, 0));
  a.grad = b.output(node, 1);
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

Thunk bind_mse(const Binder& b, const Node& node) {
  MseArgs a;
  a.pred = b.input(node, 0);
  a.target = b.input(node, 1);
  a.loss = flat(b.output(node, 0));
  a.grad = b.output(node, 1);
  a.row_count = b.row_count(node.inputs[0]);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> losses_rules() {
  static const OpRule rules[] = {{.op = "cross_entropy",
                                  .infer = infer_cross_entropy,
                                  .backward = backward,
                                  .bind = bind_cross_entropy,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{1, 0}},
                                  .is_loss = true},
                                 {.op = "mse",
                                  .infer = infer_mse,
                                  .backward = backward,
                                  .bind = bind_mse,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work,
                                  .in_place = {{1, 0}},
                                  .is_loss = true}};
  return rules;
}

}  // namespace rondo
