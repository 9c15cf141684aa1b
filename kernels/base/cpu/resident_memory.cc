#include "kernels/base/cpu/resident_memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>

namespace rondo {

ResidentMemory resident_memory() {
  ResidentMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const size_t colon = line.find(':');
    const std::string name = line.substr(0, colon);
    if (name != "VmRSS" && name != "VmHWM") continue;
    const size_t bytes = std::stoull(line.substr(colon + 1)) * 1024;  // "   1234 kB"
    (name == "VmRSS" ? memory.bytes : memory.peak) = bytes;
  }
  // The system counts roughly, and its peak may lie below what it said before.
  static std::atomic<size_t> most{0};
  memory.peak = std::max({memory.peak, memory.bytes, most.load()});
  size_t before = most;
  while (before < memory.peak && !most.compare_exchange_weak(before, memory.peak)) continue;
  return memory;
}

}  // namespace rondo
