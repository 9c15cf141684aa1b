#include "engine/graph/planner.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t alignment = 256;
size_t align_up(size_t n) { return (n + alignment - 1) / alignment * alignment; }

// A piece of the arena and the nodes between which it is alive (inclusive).
struct Interval {
  size_t bytes = 0;
  int first = 0, last = 0;
  size_t offset = no_offset;
};

// Nodes whose results reach a kept value or a parameter's gradient.
std::vector<bool> find_needed(const Graph& g) {
  std::vector<bool> node_needed(g.nodes.size(), false), value_needed(g.values.size(), false);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& node = g.nodes[i];
    for (ValueId id : node.outputs) {
      if (id == no_value) continue;
      const Value& v = g.value(id);
      if (v.keep || v.role == ValueRole::gradient || value_needed[static_cast<size_t>(id)]) {
        node_needed[i] = true;
      }
    }
    if (!node_needed[i]) continue;
    for (ValueId id : node.inputs) {
      if (id != no_value) value_needed[static_cast<size_t>(id)] = true;
    }
  }
  return node_needed;
}

struct Liveness {
  std::vector<int> defined, last_use;  // by value; -1: never
};

Liveness find_liveness(const Graph& g, const std::vector<bool>& needed, int stage) {
  Liveness l{std::vector<int>(g.values.size(), -1), std::vector<int>(g.values.size(), -1)};
  const int end = static_cast<int>(g.nodes.size());
  for (int i = 0; i < end; ++i) {
    const Node& node = g.nodes[static_cast<size_t>(i)];
    if (!needed[static_cast<size_t>(i)]) continue;
    for (ValueId id : node.outputs) {
      if (id == no_value) continue;
      const auto v = static_cast<size_t>(id);
      if (in_stage(node, stage) && l.defined[v] < 0) l.defined[v] = i;
    }
  }
  for (int i = 0; i < end; ++i) {
    const Node& node = g.nodes[static_cast<size_t>(i)];
    if (!needed[static_cast<size_t>(i)]) continue;
    for (ValueId id : node.inputs) {
      if (id == no_value) continue;
      const auto v = static_cast<size_t>(id);
      if (in_stage(node, stage)) {
        if (l.defined[v] < 0) l.defined[v] = 0;  // comes from another stage
        l.last_use[v] = std::max(l.last_use[v], i);
      } else if (l.defined[v] >= 0) {
        l.last_use[v] = end;  // leaves for another stage
      }
    }
  }
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (g.values[v].keep && l.defined[v] >= 0) l.last_use[v] = end;
  }
  return l;
}

void place(std::vector<Interval>& intervals, size_t* total, bool reuse) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].bytes > intervals[b].bytes; });
  std::vector<size_t> placed;
  for (size_t index : order) {
    Interval& it = intervals[index];
    // Those alive at the same time, by offset; take the first gap that fits.
    std::vector<const Interval*> conflicts;
    for (size_t p : placed) {
      const Interval& other = intervals[p];
      if (!reuse || (other.first <= it.last && it.first <= other.last)) conflicts.push_back(&other);
    }
    std::sort(conflicts.begin(), conflicts.end(),
              [](const Interval* a, const Interval* b) { return a->offset < b->offset; });
    size_t at = 0;
    for (const Interval* c : conflicts) {
      if (at + it.bytes <= c->offset) break;
      at = std::max(at, c->offset + c->bytes);
    }
    it.offset = at;
    *total = std::max(*total, at + it.bytes);
    placed.push_back(index);
  }
}

}  // namespace

MemoryPlan plan_memory(const Graph& g, const Context& context, const BatchCapacity& capacity,
                       Reuse reuse, int stage) {
  const size_t values = g.values.size(), nodes = g.nodes.size();
  MemoryPlan plan;
  plan.value_offset.assign(values, no_offset);
  plan.workspace_offset.assign(nodes, no_offset);
  plan.workspace_bytes.assign(nodes, 0);
  plan.needed = find_needed(g);
  const Liveness live = find_liveness(g, plan.needed, stage);

  std::vector<Interval> intervals;
  std::vector<int> interval_of(values, -1);
  // In execution order, so that an in-place output finds its input's interval.
  for (size_t i = 0; i < nodes; ++i) {
    const Node& node = g.nodes[i];
    if (!plan.needed[i] || !in_stage(node, stage)) continue;
    const int now = static_cast<int>(i);
    auto add = [&](ValueId id) {
      const auto v = static_cast<size_t>(id);
      if (id == no_value || g.values[v].role != ValueRole::activation || interval_of[v] >= 0 ||
          live.last_use[v] < 0) {
        return;
      }
      const size_t bytes = align_up(static_cast<size_t>(value_elements(g, capacity, g.shape(id))) *
                                    size_of(g.values[v].dtype));
      plan.sum_of_values += bytes;
      interval_of[v] = static_cast<int>(intervals.size());
      intervals.push_back(
          {std::max(bytes, alignment), live.defined[v], live.last_use[v], no_offset});
    };
    for (ValueId id : node.inputs) add(id);
    if (reuse == Reuse::by_liveness) {
      for (auto [out, in] : rule_of(node.op).in_place) {
        const ValueId o = node.outputs.at(static_cast<size_t>(out));
        const ValueId from = node.inputs.at(static_cast<size_t>(in));
        if (o == no_value || from == no_value) continue;
        const auto ov = static_cast<size_t>(o), iv = static_cast<size_t>(from);
        const bool possible = g.values[ov].role == ValueRole::activation && interval_of[ov] < 0 &&
                              live.last_use[ov] >= 0 && interval_of[iv] >= 0 &&
                              live.last_use[iv] == now && g.shape(o) == g.shape(from) &&
                              g.values[ov].dtype == g.values[iv].dtype;
        if (!possible) continue;
        interval_of[ov] = interval_of[iv];
        Interval& shared = intervals[static_cast<size_t>(interval_of[iv])];
        shared.last = std::max(shared.last, live.last_use[ov]);
      }
    }
    for (ValueId id : node.outputs) add(id);
    const OpRule& rule = rule_of(node.op);
    if (rule.workspace) {
      plan.workspace_bytes[i] = rule.workspace(context, g, node, capacity);
    }
  }
  std::vector<std::pair<size_t, size_t>> workspace_interval;  // node, interval
  for (size_t i = 0; i < nodes; ++i) {
    if (plan.workspace_bytes[i] == 0) continue;
    workspace_interval.emplace_back(i, intervals.size());
    const int now = static_cast<int>(i);
    intervals.push_back({align_up(plan.workspace_bytes[i]), now, now, no_offset});
  }
  place(intervals, &plan.arena_bytes, reuse == Reuse::by_liveness);
  for (size_t v = 0; v < values; ++v) {
    if (interval_of[v] >= 0) {
      plan.value_offset[v] = intervals[static_cast<size_t>(interval_of[v])].offset;
    }
  }
  for (auto [node, interval] : workspace_interval) {
    plan.workspace_offset[node] = intervals[interval].offset;
  }
  return plan;
}

}  // namespace rondo
