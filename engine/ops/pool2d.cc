// pool2d: the greatest, or the mean, of windows of an image that lie side by side.
//   attributes pooling, height of x, rows and columns of a window, level
#include "kernels/pool2d/pool2d.h"

#include "engine/ops/bind.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

Pool2dDims dims_of(const Node& node, int64_t out_cols) {
  Pool2dDims d;
  d.height = static_cast<int32_t>(node.attributes.integer("height"));
  d.rows = static_cast<int32_t>(node.attributes.integer("rows"));
  d.columns = static_cast<int32_t>(node.attributes.integer("columns"));
  d.channels = out_cols / d.out_height();
  return d;
}

Pooling2d pooling_of(const Node& node) {
  return static_cast<Pooling2d>(node.attributes.integer("pooling"));
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  const int64_t height = node.attributes.integer("height"), rows = node.attributes.integer("rows");
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1 && x.cols % height == 0,
              "pooling over images reads frames ", height, " high, not ", to_string(x));
  RONDO_CHECK(rows >= 1 && rows <= height, "pooling of ", rows, " rows of ", height);
  const auto level = static_cast<int>(node.attributes.integer("level"));
  return {{"pool2d", Shape::image(level, height / rows, x.cols / height),
           g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x, "pool2d.dx");
  const ValueId saved = pooling_of(node) == Pooling2d::greatest ? x : no_value;
  b.emit("pool2d_grad", {b.of(node.outputs[0]), saved}, {dx}, node.attributes, Phase::backward,
         node.stage);
  b.contribute(x, dx);
}

template <class Args>
Args args_of(const Binder& b, const Node& node, ValueId wide, ValueId narrow) {
  Args a;
  a.pooling = pooling_of(node);
  a.dims = dims_of(node, b.graph().shape(narrow).cols);
  a.from = b.layout_of(wide);
  a.to = b.layout_of(narrow);
  return a;
}

Thunk bind(const Binder& b, const Node& node) {
  auto a = args_of<Pool2dArgs>(b, node, node.inputs[0], node.outputs[0]);
  a.x = b.input(node, 0);
  a.y = b.output(node, 0);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  auto a = args_of<Pool2dGradArgs>(b, node, node.outputs[0], node.inputs[0]);
  a.dy = b.input(node, 0);
  if (node.inputs[1] != no_value) a.x = b.input(node, 1);
  a.dx = b.output(node, 0);
  return bound(b, a);
}

// A window is never divided: cuts are at multiples of every level's factor.
Halo whole_windows(const Node&) { return {}; }

}  // namespace

std::span<const OpRule> pool2d_rules() {
  static const OpRule rules[] = {{.op = "pool2d",
                                  .infer = infer,
                                  .backward = backward,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::window, .halo = whole_windows},
                                  .work = operand_work},
                                 {.op = "pool2d_grad",
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::window, .halo = whole_windows},
                                  .work = operand_work}};
  return rules;
}

}  // namespace rondo
