#include "engine/graph/memory_layout.h"

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

// The pieces of the arena: of activations, some of which share one, and of scratch.
class Pieces {
 public:
  Pieces(const Graph& g, const BatchCapacity& capacity, const Liveness& live)
      : graph_(g), capacity_(capacity), live_(live), of_value_(g.values.size(), none) {}

  // One for a value that needs one and has none. Returns its bytes, or 0.
  size_t add(ValueId id) {
    if (!may_have(id)) return 0;
    const auto v = static_cast<size_t>(id);
    const Value& value = graph_.values[v];
    const size_t bytes = align_up(
        static_cast<size_t>(value_elements(graph_, capacity_, value.shape)) * size_of(value.dtype));
    of_value_[v] = intervals_.size();
    intervals_.push_back(
        {std::max(bytes, alignment), live_.defined[v], live_.last_use[v], no_offset});
    return bytes;
  }

  // Outputs of node `now` take the pieces of inputs that nobody reads afterwards, where its rule
  // allows that.
  void share(const Node& node, int now) {
    for (auto [out, in] : rule_of(node.op).in_place) {
      if (static_cast<size_t>(out) >= node.outputs.size()) continue;
      const ValueId to = node.outputs.at(static_cast<size_t>(out));
      const ValueId from = node.inputs.at(static_cast<size_t>(in));
      if (from == no_value || !may_have(to)) continue;
      const auto t = static_cast<size_t>(to), f = static_cast<size_t>(from);
      const bool possible = of_value_[f] != none && live_.last_use[f] == now &&
                            graph_.shape(to) == graph_.shape(from) &&
                            graph_.values[t].dtype == graph_.values[f].dtype;
      if (!possible) continue;
      of_value_[t] = of_value_[f];
      Interval& shared = intervals_[of_value_[f]];
      shared.last = std::max(shared.last, live_.last_use[t]);
    }
  }

  void add_scratch(size_t node, size_t bytes) {
    const int now = static_cast<int>(node);
    scratch_.emplace_back(node, intervals_.size());
    intervals_.push_back({align_up(bytes), now, now, no_offset});
  }

  void place_in(MemoryLayout& memory, bool reuse) {
    place(intervals_, &memory.arena_bytes, reuse);
    for (size_t v = 0; v < of_value_.size(); ++v) {
      if (of_value_[v] != none) memory.value_offset[v] = intervals_[of_value_[v]].offset;
    }
    for (auto [node, interval] : scratch_)
      memory.workspace_offset[node] = intervals_[interval].offset;
  }

 private:
  static constexpr size_t none = static_cast<size_t>(-1);
  bool may_have(ValueId id) const {
    if (id == no_value) return false;
    const auto v = static_cast<size_t>(id);
    return graph_.values[v].role == ValueRole::activation && of_value_[v] == none &&
           live_.last_use[v] >= 0;
  }

  const Graph& graph_;
  const BatchCapacity& capacity_;
  const Liveness& live_;
  std::vector<Interval> intervals_;
  std::vector<size_t> of_value_;                    // indices of intervals_
  std::vector<std::pair<size_t, size_t>> scratch_;  // node, index
};

}  // namespace

MemoryLayout lay_out_memory(const Graph& g, const Context& context, const BatchCapacity& capacity,
                            Reuse reuse, int stage) {
  MemoryLayout memory;
  memory.value_offset.assign(g.values.size(), no_offset);
  memory.workspace_offset.assign(g.nodes.size(), no_offset);
  memory.workspace_bytes.assign(g.nodes.size(), 0);
  memory.needed = find_needed(g);
  const Liveness live = find_liveness(g, memory.needed, stage);
  Pieces pieces(g, capacity, live);
  // In execution order, so that an in-place output finds its input's piece.
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& node = g.nodes[i];
    if (!memory.needed[i] || !in_stage(node, stage)) continue;
    for (ValueId id : node.inputs) memory.sum_of_values += pieces.add(id);
    if (reuse != Reuse::never) pieces.share(node, static_cast<int>(i));
    for (ValueId id : node.outputs) memory.sum_of_values += pieces.add(id);
    const OpRule& rule = rule_of(node.op);
    if (rule.workspace) memory.workspace_bytes[i] = rule.workspace(context, g, node, capacity);
  }
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (memory.workspace_bytes[i] > 0) pieces.add_scratch(i, memory.workspace_bytes[i]);
  }
  pieces.place_in(memory, reuse != Reuse::never);
  return memory;
}

}  // namespace rondo
