#include "engine/plan/model_layers.h"

#include <algorithm>
#include <utility>

#include "engine/graph/rules.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

bool is_loop(const Node& node) { return time_rule_of(node).kind == TimeKind::recurrent; }

void require_planned(const Graph& graph) {
  require_time_rules(graph, "be planned");
  for (const Node& node : graph.nodes) {
    if (rule_of(node.op).work) continue;
    fail_input("the op '", node.op,
               "' does not say how much work it is (its rule in engine/ops), so a model with it "
               "cannot be planned");
  }
}

}  // namespace

void PassSeconds::add(Phase phase, double seconds) {
  (phase == Phase::forward    ? forward
   : phase == Phase::backward ? input_backward
                              : weight_backward) += seconds;
}

PassSeconds BlockCost::whole() const {
  return {rest.forward + directions * direction.forward + loss,
          rest.input_backward + directions * direction.input_backward,
          rest.weight_backward + directions * direction.weight_backward};
}

ModelLayers::ModelLayers(const ModelFunction& model, DType compute) {
  forward_.compute = compute;
  const Outputs outputs = model(forward_);
  loss_ = outputs.loss;
  RONDO_CHECK(loss_ != no_value, "a model without a loss cannot be trained");
  require_planned(forward_);
  layers_ = find_layers(forward_);
  graph_ = forward_;
  number_blocks();
  append_backward(graph_, loss_);
  require_planned(graph_);
  describe_blocks();
}

void ModelLayers::number_blocks() {
  int block = -1;
  for (const ModelLayer& layer : layers_) {
    first_block_.push_back(++block);
    bool has_loop = false;
    for (size_t i = layer.begin; i < layer.end; ++i) {
      Node& node = graph_.nodes[i];
      if (is_loop(node) && std::exchange(has_loop, true)) ++block;
      node.stage = block;
      for (ValueId id : node.inputs) {
        if (id != no_value && graph_.value(id).role == ValueRole::parameter) {
          graph_.value(id).stage = block;
        }
      }
    }
  }
  first_block_.push_back(block + 1);
  blocks_.resize(static_cast<size_t>(block) + 1);
}

void ModelLayers::describe_blocks() {
  for (const Value& v : graph_.values) {
    if (v.role != ValueRole::parameter) continue;
    blocks_[static_cast<size_t>(v.stage)].weights += v.shape.rows * v.shape.cols;
  }
  std::vector<int> made_by(graph_.values.size(), -1);
  for (const Node& node : graph_.nodes) {
    if (node.phase != Phase::forward) continue;
    Block& block = blocks_[static_cast<size_t>(node.stage)];
    for (int place : time_rule_of(node).states.final) {
      if (place == no_place) continue;
      const Shape& state = graph_.shape(node.outputs[static_cast<size_t>(place)]);
      block.directions = static_cast<int>(state.planes);
      block.state += static_cast<double>(state.cols);
    }
    for (ValueId id : node.inputs) {
      if (id == no_value || made_by[static_cast<size_t>(id)] < 0) continue;
      const int from = made_by[static_cast<size_t>(id)];
      if (from == node.stage) continue;
      const Value& v = graph_.value(id);
      Block& maker = blocks_[static_cast<size_t>(from)];
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
  for (const Block& b : blocks_) sum += b.weights;
  return sum;
}

std::vector<BlockCost> ModelLayers::costs(const DeviceModel& device, const BatchShape& batch,
                                          bool directions_apart) const {
  std::vector<BlockCost> all(blocks_.size());
  for (size_t b = 0; b < all.size(); ++b) {
    all[b].directions = blocks_[b].directions;
    all[b].state_bytes = sizeof(float) * batch.sequences * blocks_[b].state;
    all[b].loss_bytes = sizeof(float) * batch.sequences * (2 * batch.labels + 1);
  }
  for (const Node& node : graph_.nodes) {
    BlockCost& block = all[static_cast<size_t>(node.stage)];
    const OpRule& rule = rule_of(node.op);
    NodeWork work = rule.work(graph_, node, batch);
    const bool loop = is_loop(node) && block.directions > 0;
    const double parts = loop ? block.directions : 1;
    if (directions_apart) {
      for (double* size : {&work.operations, &work.bytes, &work.step_bytes}) *size /= parts;
    }
    const double seconds = device.seconds(node.op, dtype_of(graph_, node), work);
    if (rule.time.kind == TimeKind::loss) {
      block.loss += seconds;
    } else {
      (loop ? block.direction : block.rest)
          .add(node.phase, directions_apart ? seconds : seconds / parts);
    }
  }
  all.front().rest.forward += device.seconds("load", DType::f32, load_work(graph_, batch));
  return all;
}

std::vector<int> ModelLayers::cut(const std::vector<BlockCost>& costs, int stages) const {
  std::vector<rondo::LayerCost> of_layers(layers_.size());
  for (size_t l = 0; l < of_layers.size(); ++l) {
    for (int b = first_block_[l]; b < first_block_[l + 1]; ++b) {
      of_layers[l].forward += costs[static_cast<size_t>(b)].whole().total();
    }
  }
  return cut_by_cost(layers_, of_layers, stages, {});
}

std::vector<int> ModelLayers::first_blocks(const std::vector<int>& counts) const {
  std::vector<int> first{0};
  int layer = 0;
  for (const int count : counts) first.push_back(first_block_[static_cast<size_t>(layer += count)]);
  return first;
}

Graph ModelLayers::staged(const std::vector<int>& counts) const {
  Graph g = forward_;
  place_layers(g, layers_, counts);
  append_staged_backward(g, loss_);
  return g;
}

NodeWork load_work(const Graph& g, const BatchShape& batch) {
  NodeWork w;
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (g.values[v].role != ValueRole::input) continue;
    w.bytes += 2 * bytes_of(g, static_cast<ValueId>(v), batch);
  }
  return w;
}

int step_arrays(const OptimizerOptions& o) {
  // Weights and gradients are read and weights written; each slot is read and written.
  const bool adam = o.kind != OptimizerOptions::sgd;
  const int slots = adam ? 2 : o.momentum != 0 ? 1 : 0;
  return 3 + 2 * slots + (o.ema_decay > 0 ? 3 : 0);
}

int update_arrays(const OptimizerOptions& o) { return 2 + step_arrays(o); }

}  // namespace rondo::plan
