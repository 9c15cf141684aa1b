// conv2d: a convolution over height and time of images, whose columns of pixels are the frames.
//   inputs   x, w [out, in / groups * rows * columns of the kernel], bias [1, out], before, after
//   (absent:
//            no_value)
//   output   y
//   attributes kernel, stride, dilation, left: along time; kernel_rows, row_stride, row_dilation,
//            above: along the height; groups; height and out_height of x and y; from and to: levels
#include "kernels/conv2d/conv2d.h"

#include "engine/ops/convolution.h"
#include "engine/ops/rules_list.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// `w` has the shape of the weights.
Conv2dDims dims_of(const Graph& g, const Node& node, ValueId w) {
  const auto integer = [&](const char* key) {
    return static_cast<int32_t>(node.attributes.integer(key));
  };
  Conv2dDims d;
  d.time = {integer("kernel"), integer("stride"), integer("dilation"), integer("left")};
  d.height = {integer("kernel_rows"), integer("row_stride"), integer("row_dilation"),
              integer("above")};
  d.in_height = integer("height");
  d.out_height = integer("out_height");
  d.groups = node.attributes.integer("groups");
  d.out = g.shape(w).rows;
  d.in = g.shape(w).cols / d.taps() * d.groups;
  return d;
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "conv2d reads frames, not ", to_string(x));
  RONDO_CHECK(node.inputs.size() == 5, "conv2d: ", node.inputs.size(), " inputs");
  const Conv2dDims d = dims_of(g, node, node.inputs[1]);
  RONDO_CHECK(d.in * d.in_height == x.cols, "conv2d: input has ", x.cols,
              " columns, the weights expect ", d.in_height, " x ", d.in);
  return {{"conv2d", Shape::image(level_of(node, "to"), d.out_height, d.out),
           g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0], w = node.inputs[1], bias = node.inputs[2];
  const ValueId dy = b.of(node.outputs[0]);
  if (b.needs(x)) {
    const ValueId dx = b.like(x, "conv2d.dx");
    b.emit("conv2d_grad_input", {dy, w}, {dx, no_value, no_value}, node.attributes, Phase::backward,
           node.stage);
    b.contribute(x, dx);
  }
  const ValueId dw = b.parameter_gradient(w), db = b.parameter_gradient(bias);
  if (dw != no_value || db != no_value) {
    b.emit("conv2d_grad_weight", {dy, x, node.inputs[3], node.inputs[4], w}, {dw, db},
           node.attributes, Phase::weight_gradient, node.stage);
  }
}

template <Conv2dPhase phase>
size_t workspace(const Context& context, const Graph& g, const Node& node, const BatchCapacity&) {
  const ValueId w = node.inputs.at(phase == Conv2dPhase::grad_weight ? 4 : 1);
  return conv2d_workspace_bytes(context, phase, dims_of(g, node, w));
}

Thunk bind(const Binder& b, const Node& node) {
  Conv2dArgs a;
  a.dims = dims_of(b.graph(), node, node.inputs[1]);
  set_layouts(b, node, a);
  a.x = b.input(node, 0);
  a.w = b.input(node, 1);
  a.bias = flat(b.input(node, 2));
  a.before = edge(b, node.inputs[3]);
  a.after = edge(b, node.inputs[4]);
  a.y = b.output(node, 0);
  return bound(b, a);
}

Thunk bind_grad_input(const Binder& b, const Node& node) {
  Conv2dGradInputArgs a;
  a.dims = dims_of(b.graph(), node, node.inputs[1]);
  set_layouts(b, node, a);
  a.dy = b.input(node, 0);
  a.w = b.input(node, 1);
  a.dx = b.output(node, 0);
  a.dbefore = edge(b, node.outputs[1]);
  a.dafter = edge(b, node.outputs[2]);
  return bound(b, a);
}

Thunk bind_grad_weight(const Binder& b, const Node& node) {
  Conv2dGradWeightArgs a;
  a.dims = dims_of(b.graph(), node, node.inputs[4]);
  set_layouts(b, node, a);
  a.dy = b.input(node, 0);
  a.x = b.input(node, 1);
  a.before = edge(b, node.inputs[2]);
  a.after = edge(b, node.inputs[3]);
  a.dw = b.output(node, 0);
  a.dbias = flat(b.output(node, 1));
  a.accumulate = true;
  return bound(b, a);
}

// A product per pixel; each operand is read or written once.
template <Conv2dPhase phase>
NodeWork work(const Graph& g, const Node& node, const BatchShape& batch, double cache_bytes) {
  constexpr bool weight_gradient = phase == Conv2dPhase::grad_weight;
  const Shape& w = g.shape(node.inputs.at(weight_gradient ? 4 : 1));
  const Shape& y = g.shape(phase == Conv2dPhase::forward ? node.outputs.at(0) : node.inputs.at(0));
  NodeWork result = operand_work(g, node, batch, cache_bytes);
  result.flops = 2 * rows_of(g, y, batch) *
                 static_cast<double>(node.attributes.integer("out_height") * w.rows * w.cols);
  return result;
}

}  // namespace

const OpRule& conv2d_rule() {
  static const OpRule rule{
      .op = "conv2d",
      .infer = infer,
      .backward = backward,
      .workspace = workspace<Conv2dPhase::forward>,
      .bind = bind,
      .time = {.kind = TimeKind::window, .halo = convolution_halo, .halo_inputs = {3, 4}},
      .work = work<Conv2dPhase::forward>,
      .priced_as = "linear"};
  return rule;
}
const OpRule& conv2d_grad_input_rule() {
  static const OpRule rule{
      .op = "conv2d_grad_input",
      .workspace = workspace<Conv2dPhase::grad_input>,
      .bind = bind_grad_input,
      .time = {.kind = TimeKind::window, .halo = convolution_halo, .halo_gradients = {1, 2}},
      .work = work<Conv2dPhase::grad_input>,
      .priced_as = "linear_grad_input"};
  return rule;
}
const OpRule& conv2d_grad_weight_rule() {
  static const OpRule rule{
      .op = "conv2d_grad_weight",
      .workspace = workspace<Conv2dPhase::grad_weight>,
      .bind = bind_grad_weight,
      .time = {.kind = TimeKind::window, .halo = convolution_halo, .halo_inputs = {2, 3}},
      .work = work<Conv2dPhase::grad_weight>,
      .priced_as = "linear_grad_weight"};
  return rule;
}

}  // namespace rondo
