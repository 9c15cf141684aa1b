// lstm: one layer over all frames, one or two directions.
//   inputs   x, h0, c0, then per direction w, r, b, p (absent: no_value)
//   outputs  y, hn, cn, gates, cells [, hidden]; at a level of columns hn and cn are frames of its
//            parent, for each of which is a sequence here
//   attributes directions, input, hidden, projection [, run] [, int8]
#include "engine/ops/lstm/lstm.h"

#include "engine/ops/bind.h"
#include "kernels/base/arithmetic.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t first_weight = 3;  // of the forward node's inputs

DType state_dtype(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const LstmDims d = lstm_dims_of(node);
  const Shape& x = g.shape(node.inputs.at(0));
  const DType t = g.value(node.inputs[0]).dtype;
  RONDO_CHECK(x.axis == Axis::frames, "lstm reads frames, not ", to_string(x));
  RONDO_CHECK(x.cols == d.input, "lstm expects ", d.input, " columns, gets ", x.cols);
  RONDO_CHECK(node.inputs.size() == first_weight + 4 * static_cast<size_t>(d.directions),
              "lstm: ", node.inputs.size(), " inputs");
  const Level& level = g.levels.at(static_cast<size_t>(x.level));
  const auto final_state = [&](int64_t cols) {
    return level.column > 0 ? Shape::frames(level.parent, cols, d.directions)
                            : Shape::sequences(cols, d.directions);
  };
  std::vector<InferredValue> out = {
      {"lstm.y", Shape::frames(x.level, d.directions * d.output()), t},
      {"lstm.hn", final_state(d.output()), t},
      {"lstm.cn", final_state(d.hidden), state_dtype(t)},
      {"lstm.gates", Shape::frames(x.level, 4 * d.hidden, d.directions), t},
      {"lstm.cells", Shape::frames(x.level, d.hidden, d.directions), state_dtype(t)}};
  if (d.projection) {
    out.push_back({"lstm.hidden", Shape::frames(x.level, d.hidden, d.directions), t});
  }
  return out;
}

void backward(GradientBuilder& b, const Node& node) {
  const LstmDims d = lstm_dims_of(node);
  const ValueId x = node.inputs[0], h0 = node.inputs[1], c0 = node.inputs[2];
  const ValueId y = node.outputs[0], gates = node.outputs[3], cells = node.outputs[4];
  const ValueId hidden = d.projection ? node.outputs[5] : no_value;

  const ValueId dgates = b.like(gates, "lstm.dgates");
  ValueId dprojected = no_value;
  if (d.projection) {
    const DType dtype = b.graph().value(gates).dtype;
    dprojected = b.graph().add_activation(
        "lstm.dprojected", Shape::frames(b.graph().shape(gates).level, d.projection, d.directions),
        dtype);
  }
  const ValueId dx = b.needs(x) ? b.like(x, "lstm.dx") : no_value;
  const ValueId dh0 = b.needs(h0) ? b.like(h0, "lstm.dh0") : no_value;
  const ValueId dc0 = b.needs(c0) ? b.like(c0, "lstm.dc0") : no_value;
  ValueId dy = b.of(y);
  if (dy == no_value) {  // only the final states are used
    dy = b.like(y, "lstm.dy");
    b.emit("fill", {}, {dy}, {{"value", 0.0}}, Phase::backward, node.stage);
  }
  std::vector<ValueId> inputs = {
      c0, gates, cells, dy, b.of(node.outputs[1]), b.of(node.outputs[2])};
  inputs.insert(inputs.end(), node.inputs.begin() + first_weight, node.inputs.end());
  b.emit("lstm_backward", inputs, {dgates, dprojected, dx, dh0, dc0}, node.attributes,
         Phase::backward, node.stage);
  b.contribute(x, dx);
  b.contribute(h0, dh0);
  b.contribute(c0, dc0);

  std::vector<ValueId> gradients;
  bool any = false;
  for (size_t i = first_weight; i < node.inputs.size(); ++i) {
    gradients.push_back(b.parameter_gradient(node.inputs[i]));
    any = any || gradients.back() != no_value;
  }
  if (any) {
    b.emit("lstm_weight_grad", {x, h0, y, hidden, dgates, dprojected}, gradients, node.attributes,
           Phase::weight_gradient, node.stage);
  }
}

template <LstmPhase phase>
size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  // The value that tells the level and the compute dtype: x, gates or x.
  const ValueId id = node.inputs.at(phase == LstmPhase::backward ? 1 : 0);
  return lstm_workspace_bytes(context, phase, lstm_dims_of(node), g.value(id).dtype,
                              level_capacity(g, capacity, g.shape(id).level));
}

// The outputs of a summary of columns, which nobody reads in inference, lie at the workspace's end.
size_t unread_bytes(const Graph& g, const Node& node, const BatchCapacity& capacity) {
  const ValueId y = node.outputs.at(0);
  if (g.levels.at(static_cast<size_t>(g.shape(y).level)).column == 0) return 0;
  return static_cast<size_t>(value_elements(g, capacity, g.shape(y))) * size_of(g.value(y).dtype);
}

size_t forward_workspace(const Context& context, const Graph& g, const Node& node,
                         const BatchCapacity& capacity) {
  const size_t bytes = workspace<LstmPhase::forward>(context, g, node, capacity);
  return round_up(bytes, size_t{64}) + unread_bytes(g, node, capacity);
}

TensorView unread_output(const Binder& b, const Node& node) {
  const Shape& y = b.graph().shape(node.outputs[0]);
  const size_t bytes = unread_bytes(b.graph(), node, b.capacity());
  if (bytes == 0) return {};
  const TensorView space = b.workspace();
  return {static_cast<std::byte*>(space.data) + (space.bytes() - bytes),
          b.graph().value(node.outputs[0]).dtype,
          {value_elements(b.graph(), b.capacity(), y) / y.cols, y.cols}};
}

void bind_weights(const Binder& b, const std::vector<ValueId>& ids, size_t first, int directions,
                  LstmWeights* weights) {
  for (int d = 0; d < directions; ++d) {
    const size_t at = first + 4 * static_cast<size_t>(d);
    weights[d] = {b.view(ids.at(at)), b.view(ids.at(at + 1)), flat(b.view(ids.at(at + 2))),
                  b.view(ids.at(at + 3))};
  }
}

Thunk bind(const Binder& b, const Node& node) {
  LstmForwardArgs a = lstm_forward_args(b, node);
  if (!a.y) a.y = unread_output(b, node);
  a.workspace = b.workspace();
  return bound(b, a);
}

Thunk bind_backward(const Binder& b, const Node& node) {
  LstmBackwardArgs a = lstm_backward_args(b, node);
  a.workspace = b.workspace();
  return bound(b, a);
}

Thunk bind_weight_grad(const Binder& b, const Node& node) {
  LstmWeightGradArgs a;
  a.dims = lstm_dims_of(node);
  const int64_t planes = a.dims.directions;
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.h0 = with_planes(b.input(node, 1), planes);
  a.y = b.input(node, 2);
  a.hidden = with_planes(b.input(node, 3), planes);
  a.dgates = with_planes(b.input(node, 4), planes);
  a.dprojected = with_planes(b.input(node, 5), planes);
  bind_weights(b, node.outputs, 0, a.dims.directions, a.grads);
  a.accumulate = true;
  a.workspace = b.workspace();
  return bound(b, a);
}

// `dx`: the output of the backward node that both directions add to; no_place: none is.
template <int dx>
Node one_direction(const Node& node, int direction, bool later) {
  Node copy = node;
  const LstmRun run = direction == 0 ? LstmRun::first : LstmRun::second;
  copy.attributes = node.attributes.with("run", static_cast<int64_t>(run));
  if (dx != no_place && !later) copy.outputs[static_cast<size_t>(dx)] = no_value;
  return copy;
}

template <LstmPhase phase>
NodeWork work(const Graph& g, const Node& node, const BatchShape& batch) {
  // The value whose level the layer runs at: x, gates or x.
  const ValueId at = node.inputs.at(phase == LstmPhase::backward ? 1 : 0);
  const double rows = rows_of(g, g.shape(at), batch), steps = steps_of(g, g.shape(at), batch);
  const LstmDims d = lstm_dims_of(node);
  const auto directions = static_cast<double>(d.directions);
  const auto input = static_cast<double>(d.input), hidden = static_cast<double>(d.hidden);
  const auto projection = static_cast<double>(d.projection);
  const auto output = static_cast<double>(d.output());
  const double outside = 2 * rows * directions * 4 * hidden * input;
  const double inside = 2 * rows * directions * (4 * hidden * output + projection * hidden);
  NodeWork w = operand_work(g, node, batch);
  if (phase == LstmPhase::weight_grad) {
    w.operations = outside + inside;
    return w;
  }
  const bool has_input_product =
      phase == LstmPhase::forward || node.outputs.at(2) != no_value;  // y, or dx
  w.operations = (has_input_product ? outside : 0) + inside;
  w.steps = steps;
  w.step_bytes = steps * directions * 4 * hidden * output *
                 static_cast<double>(size_of(g.value(at).dtype));  // R
  return w;
}

}  // namespace

// Attribute "run".
LstmRun lstm_run_of(const Node& node) {
  return node.attributes.has("run") ? static_cast<LstmRun>(node.attributes.integer("run"))
                                    : LstmRun::both;
}

LstmDims lstm_dims_of(const Node& node) {
  LstmDims d;
  d.directions = static_cast<int>(node.attributes.integer("directions"));
  d.input = node.attributes.integer("input");
  d.hidden = node.attributes.integer("hidden");
  d.projection = node.attributes.integer("projection");
  d.int8 = node.attributes.has("int8");
  return d;
}

LstmForwardArgs lstm_forward_args(const Binder& b, const Node& node) {
  LstmForwardArgs a;
  a.dims = lstm_dims_of(node);
  const int64_t planes = a.dims.directions;
  a.layout = b.layout_of(node.inputs[0]);
  a.x = b.input(node, 0);
  a.h0 = with_planes(b.input(node, 1), planes);
  a.c0 = with_planes(b.input(node, 2), planes);
  bind_weights(b, node.inputs, first_weight, a.dims.directions, a.weights);
  for (int d = 0; d < a.dims.directions; ++d) {
    const ValueId* of = &node.inputs[first_weight + 4 * static_cast<size_t>(d)];
    a.packed[d] = {b.packed(of[0]), b.packed(of[1]), b.packed(of[3])};
  }
  a.y = b.output(node, 0);
  a.hn = with_planes(b.output(node, 1), planes);
  a.cn = with_planes(b.output(node, 2), planes);
  a.gates = with_planes(b.output(node, 3), planes);
  a.cells = with_planes(b.output(node, 4), planes);
  if (a.dims.projection) a.hidden = with_planes(b.output(node, 5), planes);
  a.run = lstm_run_of(node);
  return a;
}

LstmBackwardArgs lstm_backward_args(const Binder& b, const Node& node) {
  LstmBackwardArgs a;
  a.dims = lstm_dims_of(node);
  const int64_t planes = a.dims.directions;
  a.layout = b.layout_of(node.inputs[1]);
  a.c0 = with_planes(b.input(node, 0), planes);
  a.gates = with_planes(b.input(node, 1), planes);
  a.cells = with_planes(b.input(node, 2), planes);
  a.dy = b.input(node, 3);
  a.dhn = with_planes(b.input(node, 4), planes);
  a.dcn = with_planes(b.input(node, 5), planes);
  bind_weights(b, node.inputs, 6, a.dims.directions, a.weights);
  a.dgates = with_planes(b.output(node, 0), planes);
  a.dprojected = with_planes(b.output(node, 1), planes);
  a.dx = b.output(node, 2);
  a.dh0 = with_planes(b.output(node, 3), planes);
  a.dc0 = with_planes(b.output(node, 4), planes);
  a.run = lstm_run_of(node);
  return a;
}

std::span<const OpRule> lstm_rules() {
  static const OpRule rules[] = {
      {.op = "lstm",
       .infer = infer,
       .backward = backward,
       .workspace = forward_workspace,
       .bind = bind,
       .time = {.kind = TimeKind::recurrent,
                .states = {.initial = {1, 2}, .final = {1, 2}},
                .one_direction = one_direction<no_place>},
       .work = work<LstmPhase::forward>},
      {.op = "lstm_backward",
       .workspace = workspace<LstmPhase::backward>,
       .bind = bind_backward,
       .time = {.kind = TimeKind::recurrent,
                .states = {.initial = {no_place, 0},
                           .final_gradient = {4, 5},
                           .initial_gradient = {3, 4}},
                .one_direction = one_direction<2>},
       .work = work<LstmPhase::backward>,
       .in_place = {{0, 1}}},
      {.op = "lstm_weight_grad",
       .workspace = workspace<LstmPhase::weight_grad>,
       .bind = bind_weight_grad,
       .time = {.kind = TimeKind::recurrent, .states = {.initial = {1, no_place}}},
       .work = work<LstmPhase::weight_grad>}};
  return rules;
}

}  // namespace rondo
