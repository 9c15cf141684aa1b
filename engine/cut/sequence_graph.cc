#include "engine/cut/sequence_graph.h"

#include <algorithm>

#include "engine/cut/halo_graph.h"
#include "engine/cut/sequence_cut.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// A copy of `like` that no node produces.
ValueId fed(Graph& g, ValueId like, const std::string& name) {
  return g.add_activation(name, g.shape(like), g.value(like).dtype);
}
ValueId kept(Graph& g, ValueId like, const std::string& name) {
  const ValueId id = fed(g, like, name);
  g.keep(id);
  return id;
}

// The gradient nodes of a forward node whose rules say the same of time as its own.
std::vector<size_t> gradient_nodes(const Graph& g, const Node& forward) {
  std::vector<size_t> found;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].gradient_of == forward.outputs[0] &&
        time_rule_of(g.nodes[i]).kind == time_rule_of(forward).kind) {
      found.push_back(i);
    }
  }
  return found;
}

// Nodes of the forward pass in its order.
std::vector<size_t> forward_nodes(const Graph& g, TimeKind kind) {
  std::vector<size_t> found;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].gradient_of == no_value && time_rule_of(g.nodes[i]).kind == kind) {
      found.push_back(i);
    }
  }
  return found;
}

bool is_read(const Graph& g, ValueId id) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [id](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
  });
}

// Puts the values of a layer's states where a node's rule has them.
void feed(std::vector<ValueId>& operands, const StatePlaces& places,
          const std::vector<ValueId>& states) {
  for (size_t k = 0; k < states.size(); ++k) {
    if (places[k] != no_place) operands.at(static_cast<size_t>(places[k])) = states[k];
  }
}

RecurrentLayer expose(Graph& g, size_t index) {
  RecurrentLayer layer;
  layer.forward = index;
  const Node forward = g.nodes[index];
  const RecurrentPlaces& states = time_rule_of(forward).states;
  for (size_t k = 0; k < states.final.size() && states.final[k] != no_place; ++k) {
    const ValueId last = forward.outputs.at(static_cast<size_t>(states.final[k]));
    if (forward.inputs.at(static_cast<size_t>(states.initial[k])) != no_value || is_read(g, last)) {
      fail_input("a model that sets or reads the states of a recurrent layer (", forward.op,
                 ") cannot be cut in time");
    }
    layer.directions = static_cast<int>(g.shape(last).planes);
    layer.final.push_back(last);
    layer.initial.push_back(fed(g, last, "chunk.initial"));
    g.keep(last);
  }
  RONDO_CHECK(!layer.final.empty(), "a recurrent op without states: ", forward.op);
  feed(g.nodes[index].inputs, states.initial, layer.initial);
  for (size_t i : gradient_nodes(g, forward)) {
    const RecurrentPlaces& places = time_rule_of(g.nodes[i]).states;
    feed(g.nodes[i].inputs, places.initial, layer.initial);
    if (places.initial_gradient[0] == no_place) continue;
    layer.backward = i;
    for (ValueId last : layer.final) {
      layer.final_gradient.push_back(fed(g, last, "chunk.final_gradient"));
      layer.initial_gradient.push_back(kept(g, last, "chunk.initial_gradient"));
    }
    feed(g.nodes[i].inputs, places.final_gradient, layer.final_gradient);
    feed(g.nodes[i].outputs, places.initial_gradient, layer.initial_gradient);
  }
  return layer;
}

PooledLayer divide(Graph& g, size_t index) {
  PooledLayer layer;
  layer.forward = index;
  const Node pool = g.nodes[index];
  layer.pooling = time_rule_of(pool).pooling(pool);
  layer.level = g.shape(pool.inputs[0]).level;
  layer.partial = pool.outputs[0];
  g.keep(layer.partial);
  layer.whole = fed(g, layer.partial, "pool.whole");
  for (Node& node : g.nodes) {
    std::replace(node.inputs.begin(), node.inputs.end(), layer.partial, layer.whole);
  }
  for (size_t i : gradient_nodes(g, pool)) {
    RONDO_CHECK(layer.backward == no_node, "a pooling with two gradients");
    layer.backward = i;
    layer.gradient = g.nodes[i].inputs[0];
    g.keep(layer.gradient);
    layer.share = g.nodes[i].inputs[0] = fed(g, layer.partial, "pool.share");
  }
  return layer;
}

// Weight gradients to the end, each keeping its place among them.
void defer_weight_gradients(Graph& g) {
  std::stable_partition(g.nodes.begin(), g.nodes.end(),
                        [](const Node& node) { return node.phase != Phase::weight_gradient; });
}

void expose_all(ChunkGraph& c) {
  defer_weight_gradients(c.graph);
  c.halos = expose_halos(c.graph);
  for (size_t i : forward_nodes(c.graph, TimeKind::recurrent)) {
    c.layers.push_back(expose(c.graph, i));
  }
  for (size_t i : forward_nodes(c.graph, TimeKind::pooled)) {
    c.pools.push_back(divide(c.graph, i));
  }
  c.block = uncut_frames(c.graph);
  c.least_blocks = halo_blocks(c.graph);
}

// The loss over time, which is cut into its two halves; no_node: the model has none.
size_t find_loss(const Graph& g) {
  const std::vector<size_t> found = forward_nodes(g, TimeKind::loss);
  if (found.size() > 1) fail_input("a model with two losses over time cannot be cut in time");
  return found.empty() ? no_node : found[0];
}

void cut_loss(ChunkGraph& c, size_t at, int32_t max_label_length) {
  Graph& g = c.graph;
  const Node loss = g.nodes[at];
  c.logits = loss.inputs[0];
  CutLoss halves = time_rule_of(loss).cut(g, loss, max_label_length);
  c.alpha_in = halves.forward_in;
  c.alpha_out = halves.forward_out;
  c.beta_in = halves.backward_in;
  c.beta_out = halves.backward_out;
  g.keep(c.alpha_out);
  g.keep(c.beta_out);
  g.nodes[at] = std::move(halves.forward);
  g.nodes.insert(g.nodes.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(halves.backward));
}

// The node that makes a value.
size_t maker_of(const Graph& g, ValueId id) {
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (std::find(g.nodes[i].outputs.begin(), g.nodes[i].outputs.end(), id) !=
        g.nodes[i].outputs.end()) {
      return i;
    }
  }
  return no_node;
}

}  // namespace

std::string objection_to_cuts(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (time_rule_of(node).kind == TimeKind::whole)
      return str("the op '", node.op, "' makes each frame of all frames of its sequence");
  }
  // Cuts are at multiples of every level's factor; these levels have none.
  for (const Level& level : graph.levels) {
    if (level.column > 0) {
      return "an LSTM along the height of images takes each column for a sequence by itself";
    }
    if (level.whole) {
      return "a layer drops the frames that fill no window at the end of a sequence (whole = true)";
    }
  }
  return "";
}

namespace {

void require_cuttable(const Graph& graph, const char* purpose) {
  require_time_rules(graph, purpose);
  const std::string why = objection_to_cuts(graph);
  if (!why.empty()) fail_input(why, ", so a model with it cannot ", purpose);
}

}  // namespace

ChunkGraph shard_graph(const Graph& training, ValueId loss, int32_t max_label_length) {
  ChunkGraph c;
  c.graph = training;
  c.loss = loss;
  c.graph.keep(loss);
  require_cuttable(training, "be cut in time");
  const size_t at = find_loss(c.graph);
  if (at != no_node) cut_loss(c, at, max_label_length);
  expose_all(c);
  if (at != no_node) {
    c.ctc_alpha = maker_of(c.graph, c.alpha_out);
    c.ctc_grad = maker_of(c.graph, c.beta_out);
  }
  return c;
}

ChunkGraph streaming_graph(const Graph& evaluation) {
  ChunkGraph c;
  c.graph = evaluation;
  for (Value& v : c.graph.values) v.keep = false;
  require_cuttable(evaluation, "stream");
  const size_t at = find_loss(c.graph);
  if (at == no_node) fail_input("is not a ctc model: it writes no text");
  c.logits = c.graph.nodes[at].inputs[0];
  c.graph.keep(c.logits);
  c.graph.nodes.erase(c.graph.nodes.begin() + static_cast<ptrdiff_t>(at));
  expose_all(c);
  for (const HaloLayer& layer : c.halos) {
    if (layer.right == 0) continue;
    fail_input("has a convolution that looks ahead, ", layer.name,
               ": only a conv with context = \"past\" can stream");
  }
  for (const RecurrentLayer& layer : c.layers) {
    if (layer.directions == 1) continue;
    fail_input(
        "has bidirectional layers, which read a recording from its end: only unidirectional "
        "models can stream");
  }
  return c;
}

}  // namespace rondo
