// What the blocks of a gang share, and how a kernel fails. For the simulator's own files and who
// watches it: what kernels' sources include does without <string>.
#pragma once

#include <string>
#include <vector>

#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

struct Gang {
  const LaunchConfig& config;
  std::vector<Block> blocks;
  std::vector<Barrier> cluster_barriers;
  Barrier grid_barrier;
  void (*entry)(const void*);
  const void* arguments;
  GangRunner* runner = nullptr;
  bool cancelled = false;
  std::string failure;
};

// Ends the kernel: what `self` did at `where`.
[[noreturn]] void fail(const std::string& what, Where where);

}  // namespace rondo::simt
