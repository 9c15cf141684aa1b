#include "engine/plan/model_layers.h"

#include <algorithm>
#include <limits>

#include "engine/graph/rules.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

// A product with weights begins a layer.
bool begins_layer(const Graph& g, const Node& node) {
  const BatchShape any{.sequences = 1, .frames = 1};
  return work_of(g, node, any, 0).flops > 0;
}

void add_seconds(LayerSeconds& layer, Phase phase, double seconds) {
  switch (phase) {
    case Phase::forward:
      layer.forward += seconds;
      break;
    case Phase::backward:
      layer.input_backward += seconds;
      break;
    case Phase::weight_gradient:
      layer.weight_backward += seconds;
      break;
  }
}

NodeWork half_of(NodeWork w) {
  w.flops /= 2;
  w.recurrent_flops /= 2;
  w.bytes /= 2;
  w.cells /= 2;
  w.weight_bytes /= 2;
  w.far_weight_bytes /= 2;
  return w;
}

}  // namespace

LayerSeconds& LayerSeconds::operator+=(const LayerSeconds& other) {
  forward += other.forward;
  input_backward += other.input_backward;
  weight_backward += other.weight_backward;
  return *this;
}

ModelLayers::ModelLayers(const ModelFunction& model, DType compute) {
  graph_.compute = compute;
  const Outputs outputs = model(graph_);
  RONDO_CHECK(outputs.loss != no_value, "a model without a loss cannot be trained");
  require_planned(graph_);
  number_layers();
  append_backward(graph_, outputs.loss);
  require_planned(graph_);
  describe_layers();
}

void ModelLayers::number_layers() {
  int layer = 0;
  bool begun = false;
  std::vector<size_t> waiting;  // casts of weights, for the node that comes next
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (prepares_weights(graph_, graph_.nodes[i])) {
      waiting.push_back(i);
      continue;
    }
    if (begins_layer(graph_, graph_.nodes[i])) {
      if (begun) ++layer;
      begun = true;
    }
    waiting.push_back(i);
    for (size_t j : waiting) {
      Node& node = graph_.nodes[j];
      node.stage = layer;
      for (ValueId id : node.outputs) {
        if (id != no_value) graph_.value(id).stage = layer;
      }
      for (ValueId id : node.inputs) {
        if (id != no_value && graph_.value(id).role == ValueRole::parameter)
          graph_.value(id).stage = layer;
      }
    }
    waiting.clear();
  }
  layers_.resize(static_cast<size_t>(layer) + 1);
}

void ModelLayers::describe_layers() {
  for (const Value& v : graph_.values) {
    if (v.role == ValueRole::parameter)
      layers_[static_cast<size_t>(v.stage)].weights += v.shape.rows * v.shape.cols;
  }
  std::vector<int> made_by(graph_.values.size(), -1);
  for (const Node& node : graph_.nodes) {
    if (node.phase != Phase::forward) continue;
    ModelLayer& layer = layers_[static_cast<size_t>(node.stage)];
    const TimeRule& rule = time_rule_of(node);
    for (int place : rule.states.final) {
      if (place == no_place) continue;
      const Shape& state = graph_.shape(node.outputs[static_cast<size_t>(place)]);
      layer.directions = static_cast<int>(state.planes);
      layer.state += static_cast<double>(state.cols);
    }
    layer.ctc = layer.ctc || rule.kind == TimeKind::loss;
    for (ValueId id : node.inputs) {
      if (id == no_value || made_by[static_cast<size_t>(id)] < 0) continue;
      const int from = made_by[static_cast<size_t>(id)];
      if (from == node.stage) continue;
      const Value& v = graph_.value(id);
      ModelLayer& maker = layers_[static_cast<size_t>(from)];
      maker.output_row = static_cast<double>(v.shape.cols) * static_cast<double>(size_of(v.dtype));
      maker.output_level = v.shape.level;
    }
    for (ValueId id : node.outputs) {
      if (id != no_value) made_by[static_cast<size_t>(id)] = node.stage;
    }
  }
}

int64_t ModelLayers::weights() const {
  int64_t sum = 0;
  for (const ModelLayer& l : layers_) sum += l.weights;
  return sum;
}

std::vector<LayerSeconds> ModelLayers::seconds(const DeviceModel& device,
                                               const BatchShape& batch) const {
  std::vector<LayerSeconds> all(layers_.size());
  for (const Node& node : graph_.nodes) {
    add_seconds(all[static_cast<size_t>(node.stage)], node.phase,
                seconds_of(cost_of(device, graph_, node),
                           work_of(graph_, node, batch, device.cache_bytes)));
  }
  all.front().forward += load_seconds(device, batch);
  return all;
}

// The time that a batch takes to where the graph reads it.
double ModelLayers::load_seconds(const DeviceModel& device, const BatchShape& batch) const {
  return seconds_of(device.cost_of("load", DType::f32), load_work(graph_, batch));
}

std::vector<ModelLayers::Parts> ModelLayers::parts(const DeviceModel& device,
                                                   const BatchShape& batch) const {
  std::vector<Parts> all(layers_.size());
  for (const Node& node : graph_.nodes) {
    if (time_rule_of(node).kind == TimeKind::loss) continue;
    const auto l = static_cast<size_t>(node.stage);
    NodeWork work = work_of(graph_, node, batch, device.cache_bytes);
    const bool recurrent = time_rule_of(node).kind == TimeKind::recurrent;
    if (recurrent && layers_[l].directions == 2) work = half_of(work);
    add_seconds(recurrent ? all[l].direction : all[l].rest, node.phase,
                seconds_of(cost_of(device, graph_, node), work));
  }
  all.front().rest.forward += load_seconds(device, batch);
  return all;
}

std::vector<HeldLoop> ModelLayers::held_loops(const DeviceModel& device,
                                              const BatchShape& batch) const {
  std::vector<HeldLoop> all(layers_.size());
  for (const Node& node : graph_.nodes) {
    const auto held = rule_of(node.op).held_multiprocessors;
    if (node.phase != Phase::backward || held == nullptr || device.multiprocessors == 0) continue;
    const int64_t blocks = held(graph_, node, batch, device.multiprocessors);
    if (blocks == 0) continue;
    // What the node does before and after its loop keeps nothing.
    NodeWork loop = work_of(graph_, node, batch, device.cache_bytes);
    loop.calls = loop.flops = loop.bytes = 0;
    HeldLoop& of_layer = all[static_cast<size_t>(node.stage)];
    of_layer.seconds += seconds_of(cost_of(device, graph_, node), loop);
    of_layer.multiprocessors = std::max(of_layer.multiprocessors, static_cast<int>(blocks));
  }
  return all;
}

double ModelLayers::ctc_seconds(const DeviceModel& device, const BatchShape& batch) const {
  double sum = 0;
  for (const Node& node : graph_.nodes) {
    if (time_rule_of(node).kind != TimeKind::loss) continue;
    sum +=
        seconds_of(cost_of(device, graph_, node), work_of(graph_, node, batch, device.cache_bytes));
  }
  return sum;
}

Graph ModelLayers::staged(const std::vector<int>& first) const {
  Graph g = graph_;
  const auto stage_of = [&first](int layer) {
    return static_cast<int>(std::upper_bound(first.begin(), first.end() - 1, layer) -
                            first.begin()) -
           1;
  };
  for (Node& node : g.nodes) node.stage = stage_of(node.stage);
  for (Value& value : g.values) value.stage = stage_of(value.stage);
  return g;
}

std::vector<int> cut_evenly(const std::vector<double>& seconds, int stages) {
  const auto n = static_cast<int>(seconds.size());
  RONDO_CHECK(stages >= 1 && stages <= n, stages, " stages of ", n, " layers");
  std::vector<double> sums(seconds.size() + 1);
  for (size_t i = 0; i < seconds.size(); ++i) sums[i + 1] = sums[i] + seconds[i];
  // best[s][i]: the longest of s stages that hold the first i layers.
  const double never = std::numeric_limits<double>::infinity();
  const auto columns = static_cast<size_t>(n) + 1;
  std::vector<std::vector<double>> best(static_cast<size_t>(stages) + 1,
                                        std::vector<double>(columns, never));
  std::vector<std::vector<int>> from(best.size(), std::vector<int>(columns));
  best[0][0] = 0;
  for (size_t s = 1; s < best.size(); ++s) {
    for (size_t i = s; i < columns; ++i) {
      for (size_t j = s - 1; j < i; ++j) {
        const double longest = std::max(best[s - 1][j], sums[i] - sums[j]);
        if (longest < best[s][i]) {
          best[s][i] = longest;
          from[s][i] = static_cast<int>(j);
        }
      }
    }
  }
  std::vector<int> first(static_cast<size_t>(stages) + 1, n);
  for (size_t s = static_cast<size_t>(stages); s > 0; --s) {
    first[s - 1] = from[s][static_cast<size_t>(first[s])];
  }
  return first;
}

}  // namespace rondo::plan
