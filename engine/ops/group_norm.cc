// group_norm: inputs x, gain [1, channels], bias [1, channels]; outputs y, and mean and rstd
// [sequences, groups]. Attributes epsilon, groups, height.
#include "kernels/group_norm/group_norm.h"

#include "engine/ops/bind.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// `x` has the shape of what is normalised.
GroupNormDims dims_of(const Graph& g, const Node& node, ValueId x) {
  GroupNormDims d;
  d.height = static_cast<int32_t>(node.attributes.integer("height"));
  d.groups = static_cast<int32_t>(node.attributes.integer("groups"));
  d.channels = g.shape(x).cols / d.height;
  return d;
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  const int64_t height = node.attributes.integer("height");
  const int64_t groups = node.attributes.integer("groups");
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1 && x.cols % height == 0 &&
                  g.shape(node.inputs.at(1)).cols * height == x.cols && groups >= 1 &&
                  x.cols / height % groups == 0,
              "group_norm: input ", to_string(x), ", height ", height, ", gain ",
              to_string(g.shape(node.inputs[1])), ", ", groups, " groups");
  for (const Level& level : g.path_to(x.level))
    RONDO_CHECK(level.column == 0, "group_norm on columns of pixels as sequences");
  const DType t = g.value(node.inputs[0]).dtype;
  const DType statistics = t == DType::f64 ? DType::f64 : DType::f32;
  return {{"group_norm", x, t},
          {"group_norm.mean", Shape::sequences(groups), statistics},
          {"group_norm.rstd", Shape::sequences(groups), statistics}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0], dy = b.of(node.outputs[0]);
  const ValueId dx = b.needs(x) ? b.like(x, "group_norm.dx") : no_value;
  b.emit("group_norm_grad", {x, node.inputs[1], node.outputs[1], node.outputs[2], dy},
         {dx, b.parameter_gradient(node.inputs[1]), b.parameter_gradient(node.inputs[2])},
         node.attributes, Phase::backward, node.stage);
  b.contribute(x, dx);
}

size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  const ValueId x = node.inputs[0];
  return group_norm_workspace_bytes(context, dims_of(g, node, x),
                                    level_capacity(g, capacity, g.shape(x).level));
}

Thunk bind(const Binder& b, const Node& node) {
  GroupNormArgs a;
  a.epsilon = static_cast<float>(node.attributes.real("epsilon"));
  a.dims = dims_of(b.graph(), node, node.inputs[0]);
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.gamma = flat(b.input(node, 1));
  a.beta = flat(b.input(node, 2));
  a.y = b.output(node, 0);
  a.mean = flat(b.output(node, 1));
  a.rstd = flat(b.output(node, 2));
  a.workspace = b.workspace();
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  GroupNormGradArgs a;
  a.dims = dims_of(b.graph(), node, node.inputs[0]);
  a.layout = b.layout_of(node.inputs[0]);
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
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> group_norm_rules() {
  static const OpRule rules[] = {{.op = "group_norm",
                                  .infer = infer,
                                  .backward = backward,
                                  .workspace = workspace,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::whole},
                                  .work = operand_work},
                                 {.op = "group_norm_grad",
                                  .workspace = workspace,
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::whole},
                                  .work = operand_work,
                                  .in_place = {{0, 4}}}};
  return rules;
}

}  // namespace rondo
