// lstm_stack: what several lstm nodes do, layer by layer from the bottom.
//   inputs     of each layer those of its lstm node, one direction: x, h0, c0, w, r, b, p
//   outputs    of each layer: y, hn, cn, gates, cells
//   attributes layers, input (of the lowest), hidden
// lstm_stack_backward: the same for lstm_backward.
//   inputs     of each layer: c0, gates, cells, dy, dhn, dcn, w, r, b, p
//   outputs    of each layer: dgates, dprojected, dx, dh0, dc0; dx of all but the lowest means
//              nothing afterwards
#include "engine/ops/lstm/lstm_stack.h"

#include <algorithm>

#include "engine/ops/bind.h"
#include "engine/ops/lstm/lstm.h"
#include "kernels/lstm/stack/lstm_stack.h"

namespace rondo {
namespace {

// One kind of stack and the nodes that it is made of.
struct Kind {
  const char* op;
  const char* layer_op;
  Phase phase;
  size_t inputs, outputs;  // of a layer
  size_t reads, written;   // the input of the next layer that is an output of this one
  LstmPhase pass;
};
constexpr Kind forward = {"lstm_stack", "lstm", Phase::forward, 7, 5, 0, 0, LstmPhase::forward};
constexpr Kind backward = {"lstm_stack_backward", "lstm_backward", Phase::backward, 10, 5, 3, 2,
                           LstmPhase::backward};

size_t layers_of(const Node& node) {
  return static_cast<size_t>(node.attributes.integer("layers"));
}

// A layer of the stack as the node that it was.
Node layer_node(const Kind& kind, const Node& stack, size_t layer) {
  const auto piece = [&](const std::vector<ValueId>& values, size_t size) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(layer * size);
    return std::vector<ValueId>(first, first + static_cast<std::ptrdiff_t>(size));
  };
  const int64_t hidden = stack.attributes.integer("hidden");
  Node node;
  node.op = kind.layer_op;
  node.inputs = piece(stack.inputs, kind.inputs);
  node.outputs = piece(stack.outputs, kind.outputs);
  node.attributes = {{"directions", int64_t{1}},
                     {"input", layer == 0 ? stack.attributes.integer("input") : hidden},
                     {"hidden", hidden},
                     {"projection", int64_t{0}}};
  node.phase = stack.phase;
  node.stage = stack.stage;
  return node;
}

template <const Kind& kind>
size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  std::vector<LstmDims> dims;
  for (size_t l = 0; l < layers_of(node); ++l) {
    dims.push_back(lstm_dims_of(layer_node(kind, node, l)));
  }
  // The first input that is always there: x, or gates.
  const Value& first = g.value(node.inputs.at(kind.pass == LstmPhase::forward ? 0 : 1));
  return lstm_stack_workspace_bytes(context, kind.pass, dims, first.dtype,
                                    level_capacity(g, capacity, first.shape.level));
}

template <const Kind& kind, class Args, class LayerArgs>
Thunk bind_layers(const Binder& b, const Node& node,
                  LayerArgs (*args_of)(const Binder&, const Node&)) {
  Args a;
  for (size_t l = 0; l < layers_of(node); ++l) {
    a.layers.push_back(args_of(b, layer_node(kind, node, l)));
  }
  a.workspace = b.workspace();
  return bound(b, a);
}

Thunk bind_forward(const Binder& b, const Node& node) {
  return bind_layers<forward, LstmStackForwardArgs>(b, node, lstm_forward_args);
}
Thunk bind_backward(const Binder& b, const Node& node) {
  return bind_layers<backward, LstmStackBackwardArgs>(b, node, lstm_backward_args);
}

bool contains(const std::vector<ValueId>& values, ValueId id) {
  return id != no_value && std::find(values.begin(), values.end(), id) != values.end();
}

bool reads_any(const Node& node, const std::vector<ValueId>& values) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return contains(values, id); });
}

bool may_be_layer(const Graph& g, const Kind& kind, const Node& node) {
  if (node.op != kind.layer_op || node.phase != kind.phase) return false;
  const LstmDims d = lstm_dims_of(node);
  const Shape& at = g.shape(node.inputs.at(kind.pass == LstmPhase::forward ? 0 : 1));
  return lstm_run_of(node) == LstmRun::both && d.directions == 1 && d.projection == 0 &&
         g.levels.at(static_cast<size_t>(at.level)).column == 0 &&
         node.inputs.size() == kind.inputs && node.outputs.size() == kind.outputs;
}

// Whether `next` goes on where `last` ends, but for what lies between them.
bool follows(const Graph& g, const Kind& kind, const Node& last, const Node& next) {
  const ValueId between = last.outputs[kind.written];
  if (between == no_value || next.inputs[kind.reads] != between || next.stage != last.stage ||
      lstm_dims_of(next).hidden != lstm_dims_of(last).hidden) {
    return false;
  }
  if (kind.pass == LstmPhase::forward) return true;
  // Backward it means nothing afterwards.
  return !g.value(between).keep &&
         std::count_if(g.nodes.begin(), g.nodes.end(),
                       [&](const Node& n) { return contains(n.inputs, between); }) == 1;
}

// The nodes of the longest run that begins with `first`. Forward, a stack takes the place of the
// run's last node: nobody may read any of its values before. Backward that of its first one, as
// gradients of weights are made between: nothing that the others read may be made later.
std::vector<size_t> find_run(const Graph& g, const Kind& kind, size_t first) {
  const bool at_end = kind.pass == LstmPhase::forward;
  std::vector<size_t> run = {first};
  std::vector<ValueId> made = g.nodes[first].outputs, later;
  for (size_t i = first + 1; i < g.nodes.size() && run.size() < lstm_stack_layers; ++i) {
    const Node& node = g.nodes[i];
    const bool reads = reads_any(node, made);
    const Node& last = g.nodes[run.back()];
    Node rest = node;
    if (may_be_layer(g, kind, node)) rest.inputs[kind.reads] = no_value;
    const bool next = may_be_layer(g, kind, node) && follows(g, kind, last, node) &&
                      !reads_any(rest, at_end ? made : later);
    if (next) {
      run.push_back(i);
      made.insert(made.end(), node.outputs.begin(), node.outputs.end());
    } else if (reads && at_end) {
      break;
    } else {
      later.insert(later.end(), node.outputs.begin(), node.outputs.end());
    }
  }
  return run;
}

// Of nodes from the bottom.
Node stack_of(const Graph& g, const Kind& kind, const std::vector<size_t>& layers) {
  const Node& lowest = g.nodes[layers.front()];
  const LstmDims dims = lstm_dims_of(lowest);
  Node stack;
  stack.op = kind.op;
  stack.phase = kind.phase;
  stack.stage = lowest.stage;
  stack.gradient_of = lowest.gradient_of;
  stack.attributes = {{"layers", static_cast<int64_t>(layers.size())},
                      {"input", dims.input},
                      {"hidden", dims.hidden}};
  for (size_t i : layers) {
    const Node& layer = g.nodes[i];
    stack.inputs.insert(stack.inputs.end(), layer.inputs.begin(), layer.inputs.end());
    stack.outputs.insert(stack.outputs.end(), layer.outputs.begin(), layer.outputs.end());
  }
  return stack;
}

int stack_layers(Graph& graph, const Kind& kind) {
  int stacks = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!may_be_layer(graph, kind, graph.nodes[i])) continue;
    std::vector<size_t> run = find_run(graph, kind, i);
    if (run.size() < 2) continue;
    const bool at_end = kind.pass == LstmPhase::forward;
    const size_t place = at_end ? run.back() : run.front();
    if (!at_end) std::reverse(run.begin(), run.end());
    graph.nodes[place] = stack_of(graph, kind, run);
    std::sort(run.rbegin(), run.rend());
    for (size_t node : run) {
      if (node != place) graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(node));
    }
    ++stacks;
    if (at_end) --i;  // what was behind it has moved here
  }
  return stacks;
}

bool at_once(const Context& context, std::string_view op) {
  return lstm_stack_layers_at_once(select_variant(context, op, nullptr));
}

std::vector<std::pair<int, int>> gradients_in_place() {
  std::vector<std::pair<int, int>> pairs;
  for (int l = 0; l < lstm_stack_layers; ++l) {
    pairs.emplace_back(l * static_cast<int>(backward.outputs),
                       l * static_cast<int>(backward.inputs) + 1);
  }
  return pairs;
}

}  // namespace

int stack_lstm_layers(Graph& graph) {
  return stack_layers(graph, forward) + stack_layers(graph, backward);
}

int stack_lstm_layers(Graph& graph, const Context& context) {
  int stacks = 0;
  if (at_once(context, LstmStackForwardArgs::op)) stacks += stack_layers(graph, forward);
  if (at_once(context, LstmStackBackwardArgs::op)) stacks += stack_layers(graph, backward);
  return stacks;
}

std::span<const OpRule> lstm_stack_rules() {
  static const OpRule rules[] = {{.op = forward.op,
                                  .workspace = workspace<forward>,
                                  .bind = bind_forward,
                                  .time = {.kind = TimeKind::part}},
                                 {.op = backward.op,
                                  .workspace = workspace<backward>,
                                  .bind = bind_backward,
                                  .time = {.kind = TimeKind::part},
                                  .in_place = gradients_in_place()}};
  return rules;
}

}  // namespace rondo
