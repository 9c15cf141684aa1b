// Where every activation lives: offsets into one arena, by liveness. A pure function of the graph
// and the capacity, so the memory of a step is known (and printed) before anything is allocated.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/rules.h"

namespace rondo {

inline constexpr size_t no_offset = static_cast<size_t>(-1);
inline constexpr int all_stages = -1;

struct MemoryLayout {
  std::vector<size_t> value_offset;      // by value; no_offset: not in the arena, or not wanted
  std::vector<size_t> workspace_offset;  // by node; no_offset: none
  std::vector<size_t> workspace_bytes;   // by node
  std::vector<bool> needed;              // by node: its results reach something that is read
  size_t arena_bytes = 0;
  size_t sum_of_values = 0;  // what it would take without reuse

  bool wanted(ValueId id) const { return value_offset[static_cast<size_t>(id)] != no_offset; }
};

enum class Reuse : uint8_t {
  by_liveness,
  never,  // every value keeps its own memory (lockstep, debugging)
};

// For the nodes of one stage, or all. Values that cross into the stage live from the start, those
// that leave it to the end.
//
// Algorithm: greedy by size. Values are placed largest first, each at the lowest offset where it
// overlaps no value that is alive at the same time (Pisarchyk & Lee, "Efficient Memory Management
// for Deep Neural Net Inference", 2020).
MemoryLayout lay_out_memory(const Graph& graph, const Context& context,
                            const BatchCapacity& capacity, Reuse reuse = Reuse::by_liveness,
                            int stage = all_stages);

// Whether a node belongs to a stage.
inline bool in_stage(const Node& node, int stage) {
  return stage == all_stages || node.stage == stage;
}

}  // namespace rondo
