// How much memory of this process is resident, as the system counts it: of all its threads, with
// the program itself and what libraries hold.
#pragma once

#include <cstddef>

namespace rondo {

struct ResidentMemory {
  size_t bytes = 0;  // now
  size_t peak = 0;   // since the process began
};

// Zeros where the system does not tell (it is read from /proc/self/status). Thread safe.
ResidentMemory resident_memory();

}  // namespace rondo
