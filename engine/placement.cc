#include "engine/placement.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/steps/stage_messages.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

bool is_parameter(const Graph& g, ValueId id) {
  return id != no_value && g.value(id).role == ValueRole::parameter;
}

// The parameters that a node reads, through casts.
std::vector<ValueId> parameters_of(const Graph& g, const std::vector<ValueId>& cast_from,
                                   const Node& node) {
  std::vector<ValueId> found;
  for (ValueId id : node.inputs) {
    if (id == no_value) continue;
    if (is_parameter(g, id)) found.push_back(id);
    const ValueId source = cast_from[static_cast<size_t>(id)];
    if (source != no_value) found.push_back(source);
  }
  return found;
}

std::vector<ValueId> find_casts(const Graph& g) {
  std::vector<ValueId> from(g.values.size(), no_value);
  for (const Node& node : g.nodes) {
    if (prepares_weights(g, node)) from[static_cast<size_t>(node.outputs[0])] = node.inputs[0];
  }
  return from;
}

// "lstm0.1.weight_ih" -> "lstm0.1"
std::string layer_name(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// Layers a < b that have to be one with all between them.
void merge(std::vector<ModelLayer>& layers, size_t a, size_t b) {
  if (a >= b) return;
  layers[a].end = layers[b].end;
  layers[a].name += "..." + layers[b].name;
  layers.erase(layers.begin() + static_cast<std::ptrdiff_t>(a) + 1,
               layers.begin() + static_cast<std::ptrdiff_t>(b) + 1);
}

std::vector<int> layer_of_nodes(const std::vector<ModelLayer>& layers, size_t nodes) {
  std::vector<int> of(nodes);
  for (size_t l = 0; l < layers.size(); ++l) {
    for (size_t i = layers[l].begin; i < layers[l].end; ++i) of[i] = static_cast<int>(l);
  }
  return of;
}

// Merges the first layers found that a value skips or that share a parameter; whether any were.
bool merge_linked(const Graph& g, std::vector<ModelLayer>& layers) {
  const std::vector<int> of = layer_of_nodes(layers, g.nodes.size());
  std::vector<int> made(g.values.size(), -1), first_use(g.values.size(), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    for (ValueId id : g.nodes[i].inputs) {
      if (id == no_value) continue;
      const auto v = static_cast<size_t>(id);
      if (is_parameter(g, id)) {
        if (first_use[v] < 0) first_use[v] = of[i];
        if (first_use[v] < of[i]) {
          merge(layers, static_cast<size_t>(first_use[v]), static_cast<size_t>(of[i]));
          return true;
        }
      } else if (made[v] >= 0 && of[i] > made[v] + 1) {
        merge(layers, static_cast<size_t>(made[v]) + 1, static_cast<size_t>(of[i]));
        return true;
      }
    }
    for (ValueId id : g.nodes[i].outputs) {
      if (id != no_value) made[static_cast<size_t>(id)] = of[i];
    }
  }
  return false;
}

size_t stage_bytes(const LayerCost& sum, int stage, const StageMemory& memory) {
  return sum.weights * memory.bytes_per_weight +
         sum.activation_bytes *
             static_cast<size_t>(memory.micro_batches ? memory.micro_batches(stage) : 1);
}

// Zeros for everything a batch of a capacity has.
struct ZeroBatch {
  PackedHost layout;
  std::vector<int32_t> labels, offsets = {0};
  std::vector<std::vector<std::byte>> memory;
  std::vector<BatchView::Input> inputs;

  ZeroBatch(const Graph& g, const BatchCapacity& c) {
    const int32_t sequences = std::max(c.packed.sequences, 1);
    std::vector<int32_t> lengths;
    for (int32_t n = 0; n < sequences; ++n) {
      const int64_t share = (c.packed.rows + n) / sequences;
      lengths.push_back(static_cast<int32_t>(std::min<int64_t>(share, c.packed.frames)));
    }
    std::sort(lengths.rbegin(), lengths.rend());
    layout = build_packed(lengths);
    const auto each = static_cast<int32_t>(c.labels / sequences);
    for (int32_t n = 0; n < sequences; ++n) {
      labels.resize(labels.size() + static_cast<size_t>(each), 1);
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
    for (const Value& v : g.values) {
      if (v.role != ValueRole::input) continue;
      const int64_t rows = live_rows(g, layout, v.shape);
      const auto bytes = static_cast<size_t>(rows * v.shape.cols) * size_of(v.dtype);
      memory.emplace_back(bytes);
      inputs.push_back({v.name, memory.back().data(), bytes});
    }
  }
  BatchView view() const { return {&layout, labels, offsets, inputs, 1}; }
};

double seconds_of(BoundGraph& bound, const Graph& g, const Context& context, int stage,
                  Phase phase) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].stage == stage && g.nodes[i].phase == phase) bound.run_node(i);
  }
  context.stream->synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What other stages would have sent.
void clear_received(const BoundGraph& bound, const Graph& g, const Context& context, int stage) {
  for (int other : {stage - 1, stage + 1}) {
    for (ValueId id : crossing_values(g, other, stage)) {
      const TensorView view = bound.view(id);
      if (view) context.device->fill_bytes(*context.stream, view.data, 0, view.bytes());
    }
  }
}

}  // namespace

std::vector<ModelLayer> find_layers(const Graph& g) {
  require_time_rules(g, "be placed in the stages of a pipeline");
  const std::vector<ValueId> casts = find_casts(g);
  std::vector<ModelLayer> layers(1);
  bool has_weights = false;
  size_t prepared = no_offset;  // where the casts of the next weights begin
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    RONDO_CHECK(g.nodes[i].phase == Phase::forward, "layers are found before the backward pass");
    if (prepares_weights(g, g.nodes[i])) {
      prepared = std::min(prepared, i);
      continue;
    }
    const std::vector<ValueId> weights = parameters_of(g, casts, g.nodes[i]);
    if (!weights.empty()) {
      if (has_weights) {
        layers.back().end = std::min(prepared, i);
        layers.push_back({"", layers.back().end, 0});
      }
      if (layers.back().name.empty()) layers.back().name = layer_name(g.value(weights[0]).name);
      has_weights = true;
    }
    prepared = no_offset;
  }
  layers.back().end = g.nodes.size();
  while (merge_linked(g, layers)) {
  }
  return layers;
}

void place_layers(Graph& g, const std::vector<ModelLayer>& layers, const std::vector<int>& counts) {
  RONDO_CHECK(
      static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), 0)) == layers.size(),
      "a placement of other layers than the model's ", layers.size());
  size_t layer = 0;
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    for (int k = 0; k < counts[stage]; ++k, ++layer) {
      for (size_t i = layers[layer].begin; i < layers[layer].end; ++i) {
        Node& node = g.nodes[i];
        node.stage = static_cast<int>(stage);
        for (ValueId id : node.outputs) {
          if (id != no_value) g.value(id).stage = node.stage;
        }
        for (ValueId id : node.inputs) {
          if (is_parameter(g, id)) g.value(id).stage = node.stage;
        }
      }
    }
  }
}

void append_staged_backward(Graph& graph, ValueId loss) {
  append_backward(graph, loss);
  std::vector<int> made = producing_stages(graph);
  for (Node& node : graph.nodes) {
    if (!rule_of(node.op).adds_gradients) continue;
    const int a = made[static_cast<size_t>(node.inputs.at(0))];
    const int b = made[static_cast<size_t>(node.inputs.at(1))];
    const int upper = std::max(a, b);
    // A residual hands the gradient from above on as it is, so the sum may be two stages from where
    // that was made: it is added where it was handed on.
    if (a == b && a >= 0) {
      node.stage = a;
    } else if (upper > node.stage + 1) {
      node.stage = upper - 1;
    }
    made[static_cast<size_t>(node.outputs.at(0))] = node.stage;
  }
  require_neighbours(graph);
}

std::vector<LayerCost> measure_layers(const Graph& forward, ValueId loss, const Context& context,
                                      const BatchCapacity& capacity, int repeats) {
  const std::vector<ModelLayer> layers = find_layers(forward);
  Graph g = forward;
  place_layers(g, layers, std::vector<int>(layers.size(), 1));
  append_staged_backward(g, loss);
  const ZeroBatch batch(g, capacity);
  std::vector<LayerCost> costs;
  for (int stage = 0; stage < static_cast<int>(layers.size()); ++stage) {
    Parameters parameters(g, *context.device, stage);
    parameters.initialize(1);
    BoundGraph bound(g, context, BatchCapacity::merge(capacity, batch.view().extent()), parameters,
                     Reuse::by_liveness, stage);
    LayerCost c{never, never, never};
    for (int i = 0; i <= repeats; ++i) {
      bound.load(batch.view());
      clear_received(bound, g, context, stage);
      c.forward = std::min(c.forward, seconds_of(bound, g, context, stage, Phase::forward));
      clear_received(bound, g, context, stage);
      c.input_backward =
          std::min(c.input_backward, seconds_of(bound, g, context, stage, Phase::backward));
      c.weight_backward =
          std::min(c.weight_backward, seconds_of(bound, g, context, stage, Phase::weight_gradient));
    }
    c.weights = static_cast<size_t>(parameters.flat_size());
    c.activation_bytes = bound.arena_bytes();
    c.message_bytes =
        message_bytes(g, batch.layout, crossing_values(g, stage, stage + 1), Wire::exact);
    costs.push_back(c);
  }
  return costs;
}

std::vector<int> cut_by_cost(const std::vector<ModelLayer>& layers,
                             const std::vector<LayerCost>& costs, int stages,
                             const StageMemory& memory) {
  const size_t n = layers.size();
  if (static_cast<size_t>(stages) > n) {
    fail_input("a pipeline of ", stages, " stages for a model of ", n, " layers (",
               describe_placement(layers, {static_cast<int>(n)}),
               "): a stage has at least one layer");
  }
  // Seconds of a stage of layers [a, b); never, where it does not fit.
  const auto seconds = [&](int stage, size_t a, size_t b) {
    LayerCost sum;
    for (size_t l = a; l < b; ++l) {
      sum.forward += costs[l].seconds();
      sum.weights += costs[l].weights;
      sum.activation_bytes += costs[l].activation_bytes;
    }
    const bool fits = memory.limit == 0 || stage_bytes(sum, stage, memory) <= memory.limit;
    return fits ? sum.forward : never;
  };
  // best[s][b]: of stages [0, s) with layers [0, b), by `join`; from[s][b]: where stage s-1 begins.
  std::vector<std::vector<size_t>> from;
  const auto search = [&](auto cost, auto join) {
    const auto rows = static_cast<size_t>(stages) + 1;
    std::vector<std::vector<double>> best(rows, std::vector<double>(n + 1, never));
    from.assign(rows, std::vector<size_t>(n + 1, 0));
    best[0][0] = 0;
    for (size_t s = 1; s < rows; ++s) {
      for (size_t b = s; b <= n; ++b) {
        for (size_t a = s - 1; a < b; ++a) {
          if (best[s - 1][a] == never) continue;
          const double total = join(best[s - 1][a], cost(static_cast<int>(s) - 1, a, b));
          if (total < best[s][b]) {
            best[s][b] = total;
            from[s][b] = a;
          }
        }
      }
    }
    return best.back()[n];
  };
  const double slowest = search(seconds, [](double a, double b) { return std::max(a, b); });
  if (slowest == never) {
    fail_input("no cut of the model's ", n, " layers into ", stages, " stages fits ",
               memory.limit / (1024 * 1024), " MiB per stage (parallel.stage_memory_mb)");
  }
  search(
      [&](int stage, size_t a, size_t b) {
        const double t = seconds(stage, a, b);
        return t <= slowest ? t * t : never;
      },
      [](double a, double b) { return a + b; });
  std::vector<int> counts(static_cast<size_t>(stages));
  size_t end = n;
  for (auto s = static_cast<size_t>(stages); s > 0; --s) {
    const size_t begin = from[s][end];
    counts[s - 1] = static_cast<int>(end - begin);
    end = begin;
  }
  return counts;
}

std::vector<int> parse_placement(const std::string& text, const std::vector<ModelLayer>& layers,
                                 int stages, const std::string& where) {
  std::vector<int> counts;
  const char *at = text.data(), *const end = text.data() + text.size();
  while (at <= end) {
    int count = 0;
    const auto [stop, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < 1 || (stop != end && *stop != ',')) {
      fail_input(where, " = \"", text, "\": expected the number of layers of each stage, as 3,4");
    }
    counts.push_back(count);
    at = stop + 1;
  }
  if (counts.size() != static_cast<size_t>(stages)) {
    fail_input(where, " = \"", text, "\": places ", counts.size(), " stages, the pipeline has ",
               stages);
  }
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  if (static_cast<size_t>(sum) != layers.size()) {
    fail_input(where, " = \"", text, "\": places ", sum, " layers, the model has ", layers.size(),
               " (", describe_placement(layers, {static_cast<int>(layers.size())}), ")");
  }
  return counts;
}

std::string describe_placement(const std::vector<ModelLayer>& layers,
                               const std::vector<int>& counts) {
  std::string text;
  size_t layer = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    if (s > 0) text += " |";
    for (int k = 0; k < counts[s]; ++k, ++layer) {
      text += (text.empty() ? "" : " ") + layers[layer].name;
    }
  }
  return text;
}

}  // namespace rondo
