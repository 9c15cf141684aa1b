// Measures this machine's CPU for the planner: times the nodes of small models' training steps.
#pragma once

#include <functional>
#include <vector>

#include "engine/plan/machine/fit.h"
#include "engine/plan/machine/machine.h"

namespace rondo::plan {

struct MeasureOptions {
  int threads = 1;  // of each rank
  // So many ranks compute at once, as they will: cores share caches, memory and their clock.
  int ranks = 1;
  int repetitions = 5;  // of a step; medians count
  bool quick = false;   // a few small shapes, for tests
  std::vector<DType> dtypes = {DType::f32};
  // Told of each shape before it runs: its number, how many there are.
  std::function<void(int, int)> progress = {};
};

// The same shapes in the same order each time; Sample::shape tells them apart.
std::vector<Sample> measure_nodes(const MeasureOptions& options);

// What this machine's memory holds, or what the control group of this process may have of it, and
// the second-level cache of a core (1 MiB where the system does not tell).
double machine_memory_bytes();
double core_cache_bytes();

}  // namespace rondo::plan
