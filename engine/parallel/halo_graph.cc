#include "engine/parallel/halo_graph.h"

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

// The node `op` of a convolution whose weights are its input `at`.
size_t find(const Graph& g, const char* op, size_t at, ValueId weights) {
  size_t found = no_node;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].op != op || g.nodes[i].inputs.at(at) != weights) continue;
    if (found != no_node) {
      fail_input("a model whose convolutions share their weights cannot be cut in time");
    }
    found = i;
  }
  return found;
}

// "conv0" of "conv0.weight"
std::string name_of(const Graph& g, ValueId weights) {
  for (const Node& node : g.nodes) {
    if (node.op == "cast" && node.outputs[0] == weights) return name_of(g, node.inputs[0]);
  }
  const std::string& name = g.value(weights).name;
  return name.substr(0, name.rfind('.'));
}

// Of the backward pass of the convolution `conv`, which has its halo.
void expose_backward(Graph& g, HaloLayer& h, const Node& conv) {
  const ValueId x = conv.inputs[0], weights = conv.inputs[1];
  const size_t weight_gradient = find(g, "conv_grad_weight", 4, weights);
  if (weight_gradient != no_node) {
    g.nodes[weight_gradient].inputs[2] = h.before;
    g.nodes[weight_gradient].inputs[3] = h.after;
  }
  const size_t at = find(g, "conv_grad_input", 1, weights);
  if (at == no_node) return;
  h.dbefore = edge(g, x, h.left, "halo.dbefore", true);
  h.dafter = edge(g, x, h.right, "halo.dafter", true);
  h.dtail = edge(g, x, h.left, "halo.dtail", false);
  h.dhead = edge(g, x, h.right, "halo.dhead", false);
  h.dbefore_all = edge(g, x, h.left, "halo.dbefore_all", true);
  const ValueId dx = g.nodes[at].outputs[0];
  const ValueId part = g.add_activation("halo.dx", g.shape(dx), g.value(dx).dtype);
  g.nodes[at].outputs = {part, h.dbefore, h.dafter};
  const Node add{"edge_frames_grad",  {part, h.dbefore, h.dtail, h.dhead},
                 {dx, h.dbefore_all}, conv.attributes,
                 Phase::backward,     conv.stage};
  g.nodes.insert(g.nodes.begin() + static_cast<ptrdiff_t>(at) + 1, add);
}

// Returns how many nodes stand before the convolution now that did not.
size_t expose(Graph& g, size_t index, std::vector<HaloLayer>& halos) {
  const Node conv = g.nodes[index];
  const ConvHalo reach = conv_halo(conv);
  if (reach.left == 0 && reach.right == 0) return 0;
  const ValueId x = conv.inputs[0];
  HaloLayer h;
  h.name = name_of(g, conv.inputs[1]);
  h.level = g.shape(x).level;
  h.left = reach.left;
  h.right = reach.right;
  h.before = edge(g, x, h.left, "halo.before", false);
  h.after = edge(g, x, h.right, "halo.after", false);
  h.tail = edge(g, x, h.left, "halo.tail", true);
  h.head = edge(g, x, h.right, "halo.head", true);
  g.nodes[index].inputs[3] = h.before;
  g.nodes[index].inputs[4] = h.after;
  const Node edges{"edge_frames", {x, h.before}, {h.tail, h.head}, {}, Phase::forward, conv.stage};
  g.nodes.insert(g.nodes.begin() + static_cast<ptrdiff_t>(index), edges);
  expose_backward(g, h, conv);
  halos.push_back(h);
  return 1;
}

}  // namespace

ConvHalo conv_halo(const Node& conv) {
  const int64_t span =
      conv.attributes.integer("dilation") * (conv.attributes.integer("kernel") - 1);
  const int64_t left = conv.attributes.integer("left");
  return {static_cast<int32_t>(left), static_cast<int32_t>(span - left)};
}

std::vector<HaloLayer> expose_halos(Graph& g) {
  std::vector<HaloLayer> halos;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].op == "conv") i += expose(g, i, halos);
  }
  // Where their nodes stand at last.
  size_t forward = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].op == "edge_frames") halos[forward++].edges = i;
    if (g.nodes[i].op != "edge_frames_grad") continue;
    // Backward nodes stand in reverse order, but not all convolutions have one.
    const auto of = std::find_if(halos.begin(), halos.end(), [&](const HaloLayer& h) {
      return h.dbefore_all == g.nodes[i].outputs[1] && h.dhead == g.nodes[i].inputs[3];
    });
    RONDO_CHECK(of != halos.end() && of->edges_grad == no_node, "a halo's gradient of no layer");
    of->edges_grad = i;
  }
  RONDO_CHECK(forward == halos.size(), forward, " halos of ", halos.size(), " convolutions");
  return halos;
}

}  // namespace rondo
