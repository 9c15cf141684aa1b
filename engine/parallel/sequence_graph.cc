#include "engine/parallel/sequence_graph.h"

#include <algorithm>

#include "engine/parallel/halo_graph.h"
#include "engine/parallel/sequence_cut.h"
#include "kernels/base/error.h"
#include "kernels/ctc/ctc_chunk.h"

namespace rondo {
namespace {

constexpr size_t lstm_gates = 3;  // of the forward node's outputs; input 1 of the backward node

// A copy of `like` that no node produces.
ValueId fed(Graph& g, ValueId like, const std::string& name) {
  return g.add_activation(name, g.shape(like), g.value(like).dtype);
}
ValueId kept(Graph& g, ValueId like, const std::string& name) {
  const ValueId id = fed(g, like, name);
  g.keep(id);
  return id;
}

size_t find_backward(const Graph& g, const Node& forward) {
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].op == "lstm_backward" && g.nodes[i].inputs.at(1) == forward.outputs[lstm_gates])
      return i;
  }
  return no_node;
}

bool is_read(const Graph& g, ValueId id) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [id](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
  });
}

RecurrentLayer expose(Graph& g, size_t index) {
  RecurrentLayer layer;
  layer.forward = index;
  const Node forward = g.nodes[index];
  layer.directions = static_cast<int>(forward.attributes.integer("directions"));
  layer.hn = forward.outputs[1];
  layer.cn = forward.outputs[2];
  if (forward.inputs[1] != no_value || forward.inputs[2] != no_value || is_read(g, layer.hn) ||
      is_read(g, layer.cn)) {
    fail_input("a model that sets or reads the states of an LSTM layer cannot be cut in time");
  }
  g.keep(layer.hn);
  g.keep(layer.cn);
  layer.h0 = g.nodes[index].inputs[1] = fed(g, layer.hn, "chunk.h0");
  layer.c0 = g.nodes[index].inputs[2] = fed(g, layer.cn, "chunk.c0");
  layer.backward = find_backward(g, forward);
  if (layer.backward == no_node) return layer;
  layer.dhn = fed(g, layer.hn, "chunk.dhn");
  layer.dcn = fed(g, layer.cn, "chunk.dcn");
  layer.dh0 = kept(g, layer.hn, "chunk.dh0");
  layer.dc0 = kept(g, layer.cn, "chunk.dc0");
  Node& backward = g.nodes[layer.backward];
  backward.inputs[0] = layer.c0;
  backward.inputs[4] = layer.dhn;
  backward.inputs[5] = layer.dcn;
  backward.outputs[3] = layer.dh0;
  backward.outputs[4] = layer.dc0;
  for (Node& node : g.nodes) {
    // They share dgates.
    if (node.op == "lstm_weight_grad" && node.inputs[4] == backward.outputs[0]) {
      node.inputs[1] = layer.h0;
    }
  }
  return layer;
}

PooledLayer divide(Graph& g, size_t index) {
  PooledLayer layer;
  layer.forward = index;
  const Node pool = g.nodes[index];
  layer.pooling = static_cast<Pooling>(pool.attributes.integer("pooling"));
  layer.level = g.shape(pool.inputs[0]).level;
  layer.partial = pool.outputs[0];
  g.keep(layer.partial);
  layer.whole = fed(g, layer.partial, "pool.whole");
  for (Node& node : g.nodes) {
    std::replace(node.inputs.begin(), node.inputs.end(), layer.partial, layer.whole);
  }
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    // Its output has the shape of what was pooled; a graph of layers pools a value once.
    if (g.nodes[i].op != "pool_grad" || g.nodes[i].attributes.items() != pool.attributes.items() ||
        g.shape(g.nodes[i].outputs[0]) != g.shape(pool.inputs[0])) {
      continue;
    }
    RONDO_CHECK(layer.backward == no_node, "two poolings of the same kind cannot be told apart");
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
  for (size_t i = 0; i < c.graph.nodes.size(); ++i) {
    if (c.graph.nodes[i].op == "lstm") c.layers.push_back(expose(c.graph, i));
  }
  for (size_t i = 0; i < c.graph.nodes.size(); ++i) {
    if (c.graph.nodes[i].op == "pool") c.pools.push_back(divide(c.graph, i));
  }
  c.block = uncut_frames(c.graph);
  c.least_blocks = halo_blocks(c.graph);
}

size_t find_ctc(const Graph& g) {
  const auto it = std::find_if(g.nodes.begin(), g.nodes.end(),
                               [](const Node& node) { return node.op == "ctc"; });
  return it == g.nodes.end() ? no_node : static_cast<size_t>(it - g.nodes.begin());
}

// ctc -> ctc_chunk_alpha, ctc_chunk_grad.
void cut_ctc(ChunkGraph& c, size_t at, int32_t max_label_length) {
  Graph& g = c.graph;
  const Node ctc = g.nodes[at];
  const ValueId logits = ctc.inputs[0];
  const ValueId totals = g.add_input(total_frames_input, Shape::sequences(1), DType::i32);
  const Shape border = Shape::sequences(ctc_border_width(max_label_length));
  c.alpha_in = g.add_activation("ctc.alpha_in", border, DType::f64);
  c.alpha_out = g.add_activation("ctc.alpha_out", border, DType::f64);
  c.beta_in = g.add_activation("ctc.beta_in", border, DType::f64);
  c.beta_out = g.add_activation("ctc.beta_out", border, DType::f64);
  g.keep(c.alpha_out);
  g.keep(c.beta_out);
  Node alpha{"ctc_chunk_alpha", {logits, totals, c.alpha_in},
             {c.alpha_out},     ctc.attributes,
             Phase::forward,    ctc.stage};
  Node grad{"ctc_chunk_grad",
            {logits, totals, c.alpha_in, c.beta_in},
            {ctc.outputs[0], ctc.outputs[1], c.beta_out},
            ctc.attributes,
            Phase::backward,
            ctc.stage};
  g.nodes[at] = std::move(alpha);
  g.nodes.insert(g.nodes.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(grad));
}

}  // namespace

ChunkGraph shard_graph(const Graph& training, ValueId loss, int32_t max_label_length) {
  ChunkGraph c;
  c.graph = training;
  c.loss = loss;
  c.graph.keep(loss);
  const size_t ctc = find_ctc(c.graph);
  if (ctc != no_node) {
    c.logits = c.graph.nodes[ctc].inputs[0];
    cut_ctc(c, ctc, max_label_length);
  }
  expose_all(c);
  for (size_t i = 0; i < c.graph.nodes.size(); ++i) {
    if (c.graph.nodes[i].op == "ctc_chunk_alpha") c.ctc_alpha = i;
    if (c.graph.nodes[i].op == "ctc_chunk_grad") c.ctc_grad = i;
  }
  return c;
}

ChunkGraph streaming_graph(const Graph& evaluation) {
  ChunkGraph c;
  c.graph = evaluation;
  for (Value& v : c.graph.values) v.keep = false;
  const size_t ctc = find_ctc(c.graph);
  if (ctc == no_node) fail_input("is not a ctc model: it writes no text");
  c.logits = c.graph.nodes[ctc].inputs[0];
  c.graph.keep(c.logits);
  c.graph.nodes.erase(c.graph.nodes.begin() + static_cast<ptrdiff_t>(ctc));
  expose_all(c);
  for (const HaloLayer& layer : c.halos) {
    if (layer.right == 0) continue;
    fail_input("has a convolution that looks ahead, ", layer.name,
               ": only those with context = \"past\" can stream");
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
