// conv: a convolution over the frames of each sequence.
//   inputs   x, w [out, in * kernel], bias [1, out], before, after   (absent: no_value)
//   output   y
//   attributes kernel, stride, dilation, left; from and to: levels
// edge_frames: what the parts of a sequence hand each other for it. Made by those who cut graphs.
//   inputs   x, before;              outputs tail, head
//   inputs   dx, dbefore, dtail, dhead;  outputs dx and dbefore with those added
#include "kernels/conv/conv.h"

#include <algorithm>

#include "engine/ops/bind.h"
#include "engine/ops/convolution.h"
#include "engine/ops/rules_list.h"
#include "kernels/base/error.h"
#include "kernels/conv/edge_frames.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

// `w` has the shape of the weights.
ConvDims dims_of(const Graph& g, const Node& node, ValueId w) {
  const auto integer = [&](const char* key) {
    return static_cast<int32_t>(node.attributes.integer(key));
  };
  ConvDims d;
  d.kernel = integer("kernel");
  d.stride = integer("stride");
  d.dilation = integer("dilation");
  d.left = integer("left");
  d.out = g.shape(w).rows;
  d.in = g.shape(w).cols / d.kernel;
  return d;
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "conv reads frames, not ", to_string(x));
  RONDO_CHECK(node.inputs.size() == 5, "conv: ", node.inputs.size(), " inputs");
  const ConvDims d = dims_of(g, node, node.inputs[1]);
  RONDO_CHECK(d.in == x.cols && g.shape(node.inputs[1]).cols == d.in * d.kernel, "conv: input has ",
              x.cols, " columns, the weights expect ", d.in);
  return {{"conv", Shape::frames(level_of(node, "to"), d.out), g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0], w = node.inputs[1], bias = node.inputs[2];
  const ValueId dy = b.of(node.outputs[0]);
  if (b.needs(x)) {
    const ValueId dx = b.like(x, "conv.dx");
    b.emit("conv_grad_input", {dy, w}, {dx, no_value, no_value}, node.attributes, Phase::backward,
           node.stage);
    b.contribute(x, dx);
  }
  const ValueId dw = b.parameter_gradient(w), db = b.parameter_gradient(bias);
  if (dw != no_value || db != no_value) {
    b.emit("conv_grad_weight", {dy, x, node.inputs[3], node.inputs[4], w}, {dw, db},
           node.attributes, Phase::weight_gradient, node.stage);
  }
}

template <ConvPhase phase>
size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  const ValueId w = node.inputs.at(phase == ConvPhase::grad_weight ? 4 : 1);
  const size_t bytes =
      conv_workspace_bytes(context, phase, dims_of(g, node, w), g.value(node.inputs[0]).dtype,
                           level_capacity(g, capacity, level_of(node, "from")),
                           level_capacity(g, capacity, level_of(node, "to")));
  if (phase != ConvPhase::grad_weight) return bytes;
  // The bias's gradient follows in the same scratch.
  return std::max(bytes, reduce_rows_workspace_bytes(
                             context, level_capacity(g, capacity, level_of(node, "to")).rows,
                             g.shape(node.inputs[0]).cols));
}

Thunk bind(const Binder& b, const Node& node) {
  ConvArgs a;
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
  ConvGradInputArgs a;
  a.dims = dims_of(b.graph(), node, node.inputs[1]);
  set_layouts(b, node, a);
  a.dy = b.input(node, 0);
  a.w = b.input(node, 1);
  a.dx = b.output(node, 0);
  a.dbefore = edge(b, node.outputs[1]);
  a.dafter = edge(b, node.outputs[2]);
  a.whole_strides = true;  // levels have ceil(length / factor) frames
  return bound(b, a);
}

Thunk bind_grad_weight(const Binder& b, const Node& node) {
  ConvGradWeightArgs a;
  a.dims = dims_of(b.graph(), node, node.inputs[4]);
  set_layouts(b, node, a);
  a.dy = b.input(node, 0);
  a.x = b.input(node, 1);
  a.before = edge(b, node.inputs[2]);
  a.after = edge(b, node.inputs[3]);
  a.dw = b.output(node, 0);
  a.accumulate = true;
  Thunk weight = a.dw ? bound(b, a) : Thunk{};
  ReduceRowsArgs r;
  r.x = a.dy;
  r.y = flat(b.output(node, 1));
  r.row_count = b.row_count(node.inputs[0]);
  r.accumulate = true;
  r.workspace = b.workspace();
  Thunk bias = r.y ? bound(b, r) : Thunk{};
  return [weight = std::move(weight), bias = std::move(bias)](const Context& context) {
    if (weight) weight(context);
    if (bias) bias(context);
  };
}

Thunk bind_edges(const Binder& b, const Node& node) {
  EdgeFramesArgs a;
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.before = edge(b, node.inputs[1]);
  a.tail = edge(b, node.outputs[0]);
  a.head = edge(b, node.outputs[1]);
  return bound(b, a);
}

// `to` has what `from` has, where that is not the same memory.
Thunk copied(const Binder& b, const TensorView& from, const TensorView& to) {
  if (!to || from.data == to.data) return {};
  PointwiseArgs copy;
  copy.function = PointwiseFunction::copy;
  copy.x = {
      from.data, from.dtype, {from.numel() / from.dim(from.rank - 1), from.dim(from.rank - 1)}};
  copy.y = {to.data, to.dtype, {copy.x.dim(0), copy.x.dim(1)}};
  return bound(b, copy);
}

Thunk bind_edges_grad(const Binder& b, const Node& node) {
  EdgeFramesGradArgs a;
  a.layout = b.layout(level_of(node, "from"));
  a.dtail = edge(b, node.inputs[2]);
  a.dhead = edge(b, node.inputs[3]);
  a.dx = b.output(node, 0);
  a.dbefore = edge(b, node.outputs[1]);
  Thunk dx = copied(b, b.input(node, 0), a.dx);
  Thunk dbefore = copied(b, b.input(node, 1), b.output(node, 1));
  Thunk add = bound(b, a);
  return [dx = std::move(dx), dbefore = std::move(dbefore),
          add = std::move(add)](const Context& context) {
    if (dx) dx(context);
    if (dbefore) dbefore(context);
    add(context);
  };
}

// y = windows W^T, dx = windows of dy times W, dW = dy^T windows; the windows are written once and
// read once beside the operands.
template <ConvPhase phase>
NodeWork work(const Graph& g, const Node& node, const BatchShape& batch, double cache_bytes) {
  constexpr bool weight_gradient = phase == ConvPhase::grad_weight;
  const Shape& weight = g.shape(node.inputs.at(weight_gradient ? 4 : 1));
  // What is gathered, and for the frames of what.
  const Shape& from = g.shape(node.inputs.at(weight_gradient ? 1 : 0));
  const Shape& to = g.shape(weight_gradient ? node.inputs.at(0) : node.outputs.at(0));
  const double rows = rows_of(g, to, batch);
  const double window = static_cast<double>(from.cols * node.attributes.integer("kernel"));
  NodeWork w = operand_work(g, node, batch, cache_bytes);
  w.flops = 2 * rows * static_cast<double>(weight.rows * weight.cols);
  w.bytes += 2 * rows * window * static_cast<double>(size_of(dtype_of(g, node)));
  return w;
}

}  // namespace

const OpRule& conv_rule() {
  static const OpRule rule{
      .op = "conv",
      .infer = infer,
      .backward = backward,
      .workspace = workspace<ConvPhase::forward>,
      .bind = bind,
      .time = {.kind = TimeKind::window, .halo = convolution_halo, .halo_inputs = {3, 4}},
      .work = work<ConvPhase::forward>,
      .priced_as = "linear"};
  return rule;
}
const OpRule& conv_grad_input_rule() {
  static const OpRule rule{
      .op = "conv_grad_input",
      .workspace = workspace<ConvPhase::grad_input>,
      .bind = bind_grad_input,
      .time = {.kind = TimeKind::window, .halo = convolution_halo, .halo_gradients = {1, 2}},
      .work = work<ConvPhase::grad_input>,
      .priced_as = "linear_grad_input"};
  return rule;
}
const OpRule& conv_grad_weight_rule() {
  static const OpRule rule{
      .op = "conv_grad_weight",
      .workspace = workspace<ConvPhase::grad_weight>,
      .bind = bind_grad_weight,
      .time = {.kind = TimeKind::window, .halo = convolution_halo, .halo_inputs = {2, 3}},
      .work = work<ConvPhase::grad_weight>,
      .priced_as = "linear_grad_weight"};
  return rule;
}
const OpRule& edge_frames_rule() {
  static const OpRule rule{
      .op = "edge_frames", .bind = bind_edges, .time = {.kind = TimeKind::part}};
  return rule;
}
const OpRule& edge_frames_grad_rule() {
  static const OpRule rule{.op = "edge_frames_grad",
                           .bind = bind_edges_grad,
                           .time = {.kind = TimeKind::part},
                           .in_place = {{0, 0}, {1, 1}}};
  return rule;
}

}  // namespace rondo
