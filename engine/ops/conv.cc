// conv: a convolution over the frames of each sequence, or over height and time of images, whose
// columns of pixels are the frames.
//   inputs   x, w [out, in / groups * rows * columns of the kernel], bias [1, out], before, after
//            (absent: no_value)
//   output   y
//   attributes kernel, stride, dilation, left: along time; kernel_rows, row_stride, row_dilation,
//            above: along the height; groups; height and out_height of x and y, 0 for frames that
//            are no images; from and to: levels; int8, or none
// edge_frames: what the parts of a sequence hand each other for it. Made by those who cut graphs.
//   inputs   x, before;              outputs tail, head
//   inputs   dx, dbefore, dtail, dhead;  outputs dx and dbefore with those added
#include "kernels/conv/conv.h"

#include <algorithm>

#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/conv/edge_frames.h"
#include "kernels/pointwise/pointwise.h"

namespace rondo {
namespace {

int level_of(const Node& node, const char* key) {
  return static_cast<int>(node.attributes.integer(key));
}

// Frames before or behind a part: [frames, N, cols], also for one frame.
TensorView edge(const Binder& b, ValueId id) {
  const TensorView v = id == no_value ? TensorView{} : b.view(id);
  return v ? with_planes(v, b.graph().shape(id).planes) : v;
}

// `weights`: the input that has their shape.
ConvDims dims_of(const Graph& g, const Node& node, size_t weights) {
  const auto integer = [&](const char* key) {
    return static_cast<int32_t>(node.attributes.integer(key));
  };
  const Shape& w = g.shape(node.inputs.at(weights));
  ConvDims d;
  d.time = {integer("kernel"), integer("stride"), integer("dilation"), integer("left")};
  d.height = {integer("kernel_rows"), integer("row_stride"), integer("row_dilation"),
              integer("above")};
  d.in_height = std::max(integer("height"), 1);
  d.out_height = std::max(integer("out_height"), 1);
  d.groups = node.attributes.integer("groups");
  d.int8 = node.attributes.has("int8");
  d.out = w.rows;
  d.in = w.cols / d.taps() * d.groups;
  return d;
}

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "conv reads frames, not ", to_string(x));
  RONDO_CHECK(node.inputs.size() == 5, "conv: ", node.inputs.size(), " inputs");
  const ConvDims d = dims_of(g, node, 1);
  RONDO_CHECK(d.in_cols() == x.cols && g.shape(node.inputs[1]).cols == d.weight_cols(),
              "conv: input has ", x.cols, " columns, the weights expect ", d.in_height, " x ",
              d.in);
  const int to = level_of(node, "to");
  const Shape y = node.attributes.integer("out_height") == 0
                      ? Shape::frames(to, d.out)
                      : Shape::image(to, d.out_height, d.out);
  return {{"conv", y, g.value(node.inputs[0]).dtype}};
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

constexpr size_t weights_of(ConvPhase phase) { return phase == ConvPhase::grad_weight ? 4 : 1; }

template <ConvPhase phase>
size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  return conv_workspace_bytes(context, phase, dims_of(g, node, weights_of(phase)),
                              g.value(node.inputs[0]).dtype,
                              level_capacity(g, capacity, level_of(node, "from")),
                              level_capacity(g, capacity, level_of(node, "to")));
}

template <class Args>
Args args_of(const Binder& b, const Node& node, ConvPhase phase) {
  Args a;
  a.dims = dims_of(b.graph(), node, weights_of(phase));
  a.from = b.layout(level_of(node, "from"));
  a.to = b.layout(level_of(node, "to"));
  a.workspace = b.workspace();
  return a;
}

Thunk bind(const Binder& b, const Node& node) {
  auto a = args_of<ConvArgs>(b, node, ConvPhase::forward);
  a.x = b.input(node, 0);
  a.w = b.input(node, 1);
  a.bias = flat(b.input(node, 2));
  a.before = edge(b, node.inputs[3]);
  a.after = edge(b, node.inputs[4]);
  a.y = b.output(node, 0);
  a.packed_w = b.packed(node.inputs[1]);
  return bound(b, a);
}

Thunk bind_grad_input(const Binder& b, const Node& node) {
  auto a = args_of<ConvGradInputArgs>(b, node, ConvPhase::grad_input);
  a.dy = b.input(node, 0);
  a.w = b.input(node, 1);
  a.dx = b.output(node, 0);
  a.dbefore = edge(b, node.outputs[1]);
  a.dafter = edge(b, node.outputs[2]);
  a.whole_strides = true;  // levels have ceil(length / factor) frames
  return bound(b, a);
}

Thunk bind_grad_weight(const Binder& b, const Node& node) {
  auto a = args_of<ConvGradWeightArgs>(b, node, ConvPhase::grad_weight);
  a.dy = b.input(node, 0);
  a.x = b.input(node, 1);
  a.before = edge(b, node.inputs[2]);
  a.after = edge(b, node.inputs[3]);
  a.dw = b.output(node, 0);
  a.dbias = flat(b.output(node, 1));
  a.accumulate = true;
  return bound(b, a);
}

Halo halo_of(const Node& node) {
  const int64_t span =
      node.attributes.integer("dilation") * (node.attributes.integer("kernel") - 1);
  const int64_t left = node.attributes.integer("left");
  return {static_cast<int32_t>(left), static_cast<int32_t>(span - left)};
}

// A product per pixel of y. Windows of one row are written once and read once beside the operands.
template <ConvPhase phase>
NodeWork work(const Graph& g, const Node& node, const BatchShape& batch) {
  const ConvDims d = dims_of(g, node, weights_of(phase));
  const Shape& y = g.shape(phase == ConvPhase::forward ? node.outputs.at(0) : node.inputs.at(0));
  const double rows = rows_of(g, y, batch);
  NodeWork w = operand_work(g, node, batch);
  w.operations = 2 * rows * static_cast<double>(d.out_height * d.out * d.weight_cols());
  if (d.one_row()) {
    const int64_t window = d.time.kernel * (phase == ConvPhase::grad_input ? d.out : d.in);
    w.bytes +=
        2 * rows * static_cast<double>(window) * static_cast<double>(size_of(dtype_of(g, node)));
  }
  return w;
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

}  // namespace

std::span<const OpRule> conv_rules() {
  static const OpRule rules[] = {
      {.op = "conv",
       .infer = infer,
       .backward = backward,
       .workspace = workspace<ConvPhase::forward>,
       .bind = bind,
       .time = {.kind = TimeKind::window, .halo = halo_of, .halo_inputs = {3, 4}},
       .work = work<ConvPhase::forward>},
      {.op = "conv_grad_input",
       .workspace = workspace<ConvPhase::grad_input>,
       .bind = bind_grad_input,
       .time = {.kind = TimeKind::window, .halo = halo_of, .halo_gradients = {1, 2}},
       .work = work<ConvPhase::grad_input>},
      {.op = "conv_grad_weight",
       .workspace = workspace<ConvPhase::grad_weight>,
       .bind = bind_grad_weight,
       .time = {.kind = TimeKind::window, .halo = halo_of, .halo_inputs = {2, 3}},
       .work = work<ConvPhase::grad_weight>},
      {.op = "edge_frames", .bind = bind_edges, .time = {.kind = TimeKind::part}},
      {.op = "edge_frames_grad",
       .bind = bind_edges_grad,
       .time = {.kind = TimeKind::part},
       .in_place = {{0, 0}, {1, 1}}}};
  return rules;
}

}  // namespace rondo
