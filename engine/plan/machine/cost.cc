#include "engine/plan/machine/cost.h"

#include "engine/graph/rules.h"
#include "kernels/base/error.h"

namespace rondo::plan {

NodeWork work_of(const Graph& graph, const Node& node, const BatchShape& batch,
                 double cache_bytes) {
  return rule_of(node.op).work(graph, node, batch, cache_bytes);
}

const OpCost& cost_of(const DeviceModel& device, const Graph& graph, const Node& node) {
  const OpRule& rule = rule_of(node.op);
  return device.cost_of(rule.priced_as ? rule.priced_as : rule.op, dtype_of(graph, node));
}

void require_planned(const Graph& graph) {
  require_time_rules(graph, "be planned");
  for (const Node& node : graph.nodes) {
    if (rule_of(node.op).work) continue;
    fail_input("the op '", node.op,
               "' does not say how much work it is (its rule in engine/ops), so a model with it "
               "cannot be planned");
  }
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

NodeWork update_work(int64_t weights, int arrays) {
  NodeWork w;
  w.bytes = 4.0 * static_cast<double>(weights) * arrays;
  return w;
}

}  // namespace rondo::plan
