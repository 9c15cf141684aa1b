// Reverse-mode differentiation as a transformation of the graph.
#include <algorithm>

#include "engine/graph/graph.h"
#include "engine/graph/rules.h"
#include "kernels/base/error.h"

namespace rondo {

GradientBuilder::GradientBuilder(Graph& graph)
    : graph_(graph), gradients_(graph.values.size(), no_value) {}

void GradientBuilder::contribute(ValueId id, ValueId gradient) {
  if (id == no_value || gradient == no_value || !graph_.value(id).needs_gradient) return;
  gradients_.resize(graph_.values.size(), no_value);
  ValueId& slot = gradients_[static_cast<size_t>(id)];
  if (slot == no_value) {
    slot = gradient;
    return;
  }
  const ValueId sum = like(id, graph_.value(id).name + ".grad_sum");
  const ValueId first = slot;
  emit("accumulate", {first, gradient}, {sum}, {}, Phase::backward, graph_.value(gradient).stage);
  gradients_[static_cast<size_t>(id)] = sum;
}

ValueId GradientBuilder::parameter_gradient(ValueId id) {
  if (id == no_value) return no_value;
  id = parameter_behind(graph_, id);
  const Value parameter = graph_.value(id);
  if (parameter.role != ValueRole::parameter || !parameter.needs_gradient) return no_value;
  if (parameter.gradient == no_value) {
    const ValueId g =
        graph_.add_activation(parameter.name + ".grad", parameter.shape, parameter.dtype);
    graph_.value(g).role = ValueRole::gradient;
    graph_.value(g).stage = parameter.stage;
    graph_.value(id).gradient = g;
  }
  return graph_.value(id).gradient;
}

ValueId GradientBuilder::like(ValueId id, std::string name) {
  const Value model = graph_.value(id);
  const ValueId made = graph_.add_activation(std::move(name), model.shape, model.dtype);
  graph_.value(made).stage = model.stage;
  return made;
}

void GradientBuilder::emit(std::string op, std::vector<ValueId> inputs,
                           std::vector<ValueId> outputs, Attributes attributes, Phase phase,
                           int stage) {
  rule_of(op);
  graph_.nodes.push_back({std::move(op), std::move(inputs), std::move(outputs),
                          std::move(attributes), phase, stage, of_});
}

namespace {

bool makes(const Node& node, ValueId id) {
  return std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end();
}

int64_t readers(const Graph& g, ValueId id) {
  return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
  });
}

}  // namespace

void freeze_before(Graph& graph, std::string_view layer, std::string_view what) {
  std::string layers;
  bool found = false;
  for (Value& v : graph.values) {
    if (v.role != ValueRole::parameter) continue;
    const std::string_view name = v.name;
    if (!layer.empty() && name.starts_with(layer) && name.substr(layer.size()).starts_with(".")) {
      found = true;
      break;
    }
    v.needs_gradient = false;
    const std::string of(name.substr(0, name.rfind('.')));
    if (!layers.ends_with(of)) layers += (layers.empty() ? "" : ", ") + of;
  }
  if (!found) fail_input(what, " is '", layer, "', expected one of the layers ", layers);
  for (const Node& node : graph.nodes) {
    const bool needs = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != no_value && graph.value(id).needs_gradient;
    });
    if (needs) continue;
    for (ValueId id : node.outputs) {
      if (id != no_value) graph.value(id).needs_gradient = false;
    }
  }
}

bool fuse_loss(Graph& graph, ValueId loss, int64_t least_columns) {
  const auto at = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                               [&](const Node& node) { return makes(node, loss); });
  if (at == graph.nodes.end() || at->inputs.empty()) return false;
  const auto fused = rule_of(at->op).fused;
  const ValueId between = at->inputs.front();
  if (!fused || graph.shape(between).cols < least_columns) return false;
  if (graph.value(between).keep || readers(graph, between) != 1) return false;
  const auto maker =
      std::find_if(graph.nodes.begin(), at, [&](const Node& node) { return makes(node, between); });
  if (maker == at) return false;
  std::optional<Node> one = fused(graph, *at, *maker);
  if (!one) return false;
  *at = std::move(*one);
  return true;
}

BackwardResult append_backward_with_gradients(Graph& graph, ValueId loss) {
  RONDO_CHECK(loss != no_value && graph.value(loss).needs_gradient,
              "the loss does not depend on any parameter");
  const size_t forward_nodes = graph.nodes.size();
  GradientBuilder builder(graph);
  graph.keep(loss);
  for (size_t i = forward_nodes; i-- > 0;) {
    const Node node = graph.nodes[i];  // a copy: the rule appends to graph.nodes
    const OpRule& rule = rule_of(node.op);
    const bool produces_loss = makes(node, loss);
    RONDO_CHECK(!produces_loss || rule.is_loss, "the backward pass starts at a loss, ", node.op,
                " is none");
    if (!rule.backward) continue;
    const bool receives = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](ValueId id) { return builder.of(id) != no_value; });
    if (!produces_loss && !receives) continue;
    builder.differentiate(node);
    rule.backward(builder, node);
  }
  BackwardResult result;
  result.nodes_added = static_cast<int>(graph.nodes.size() - forward_nodes);
  result.gradients = builder.take();
  result.gradients.resize(graph.values.size(), no_value);
  return result;
}

int append_backward(Graph& graph, ValueId loss) {
  return append_backward_with_gradients(graph, loss).nodes_added;
}

}  // namespace rondo
