#include "engine/cut/halo_graph.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// [frames, N, columns of x], of no node; no_value for no frames.
ValueId edge(Graph& g, ValueId x, int32_t frames, const char* name, bool keep) {
  if (frames == 0) return no_value;
  const ValueId id =
      g.add_activation(name, Shape::sequences(g.shape(x).cols, frames), g.value(x).dtype);
  if (keep) g.keep(id);
  return id;
}

// "conv0" of "conv0.weight"
std::string name_of(const Graph& g, ValueId weights) {
  const std::string& name = g.value(parameter_behind(g, weights)).name;
  return name.substr(0, name.rfind('.'));
}

// Gives a node the frames before and behind its part at the places that its rule names.
void set_halo(std::vector<ValueId>& operands, HaloPlaces places, ValueId before, ValueId after) {
  if (places.before != no_place) operands.at(static_cast<size_t>(places.before)) = before;
  if (places.after != no_place) operands.at(static_cast<size_t>(places.after)) = after;
}

// Does the same for the gradient nodes of the window `node`, which has its halo.
void expose_backward(Graph& g, HaloLayer& h, const Node& node) {
  const ValueId x = node.inputs[0];
  size_t at = no_node;  // the node that makes the input's gradient
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].gradient_of != node.outputs[0]) continue;
    const TimeRule& rule = time_rule_of(g.nodes[i]);
    set_halo(g.nodes[i].inputs, rule.halo_inputs, h.before, h.after);
    if (rule.halo_gradients.before != no_place) at = i;
  }
  if (at == no_node) return;
  h.dbefore = edge(g, x, h.left, "halo.dbefore", true);
  h.dafter = edge(g, x, h.right, "halo.dafter", true);
  h.dtail = edge(g, x, h.left, "halo.dtail", false);
  h.dhead = edge(g, x, h.right, "halo.dhead", false);
  h.dbefore_all = edge(g, x, h.left, "halo.dbefore_all", true);
  const ValueId dx = h.dx = g.nodes[at].outputs[0];
  const ValueId part = g.add_activation("halo.dx", g.shape(dx), g.value(dx).dtype);
  g.nodes[at].outputs[0] = part;
  set_halo(g.nodes[at].outputs, time_rule_of(g.nodes[at]).halo_gradients, h.dbefore, h.dafter);
  const Node add{"edge_frames_grad",  {part, h.dbefore, h.dtail, h.dhead},
                 {dx, h.dbefore_all}, {{"from", h.level}},
                 Phase::backward,     node.stage};
  g.nodes.insert(g.nodes.begin() + static_cast<ptrdiff_t>(at) + 1, add);
}

// Returns how many nodes stand before the window now that did not.
size_t expose(Graph& g, size_t index, std::vector<HaloLayer>& halos) {
  const Node node = g.nodes[index];
  const Halo reach = time_rule_of(node).halo(node);
  if (reach.left == 0 && reach.right == 0) return 0;
  const ValueId x = node.inputs[0];
  HaloLayer h;
  h.name = name_of(g, node.inputs[1]);
  h.level = g.shape(x).level;
  h.left = reach.left;
  h.right = reach.right;
  h.before = edge(g, x, h.left, "halo.before", false);
  h.after = edge(g, x, h.right, "halo.after", false);
  h.tail = edge(g, x, h.left, "halo.tail", true);
  h.head = edge(g, x, h.right, "halo.head", true);
  set_halo(g.nodes[index].inputs, time_rule_of(node).halo_inputs, h.before, h.after);
  const Node edges{"edge_frames", {x, h.before}, {h.tail, h.head}, {}, Phase::forward, node.stage};
  g.nodes.insert(g.nodes.begin() + static_cast<ptrdiff_t>(index), edges);
  expose_backward(g, h, node);
  halos.push_back(h);
  return 1;
}

}  // namespace

std::vector<HaloLayer> expose_halos(Graph& g) {
  std::vector<HaloLayer> halos;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const bool window =
        g.nodes[i].gradient_of == no_value && time_rule_of(g.nodes[i]).kind == TimeKind::window;
    if (window) i += expose(g, i, halos);
  }
  // Where the nodes that were put in stand at last.
  const auto makes = [](const Node& node, ValueId id) {
    return id != no_value &&
           std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end();
  };
  for (HaloLayer& h : halos) {
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& node = g.nodes[i];
      if (makes(node, h.tail) || makes(node, h.head)) h.edges = i;
      if (h.dx != no_value && makes(node, h.dx)) h.edges_grad = i;
    }
    RONDO_CHECK(h.edges != no_node, "a halo of no layer");
  }
  return halos;
}

}  // namespace rondo
