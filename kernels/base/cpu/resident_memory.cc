#include "kernels/base/cpu/resident_memory.h"

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
  return memory;
}

}  // namespace rondo
