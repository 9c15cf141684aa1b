#include "engine/graph/time_rule.h"

#include "engine/graph/rules.h"
#include "kernels/base/error.h"

namespace rondo {

const TimeRule& time_rule_of(const Node& node) { return rule_of(node.op).time; }

void require_time_rules(const Graph& graph, std::string_view purpose) {
  for (const Node& node : graph.nodes) {
    const TimeKind kind = time_rule_of(node).kind;
    RONDO_CHECK(kind != TimeKind::part, "the graph is cut in time already: it has ", node.op);
    if (kind != TimeKind::unstated) continue;
    fail_input("the op '", node.op,
               "' does not say what it does to time (its rule in engine/ops), so a model with it "
               "cannot ",
               purpose);
  }
}

bool prepares_weights(const Graph& graph, const Node& node) {
  return rule_of(node.op).converts && graph.value(node.inputs.at(0)).role == ValueRole::parameter;
}

ValueId parameter_behind(const Graph& graph, ValueId id) {
  for (const Node& node : graph.nodes) {
    if (!node.outputs.empty() && node.outputs[0] == id && prepares_weights(graph, node))
      return node.inputs[0];
  }
  return id;
}

}  // namespace rondo
