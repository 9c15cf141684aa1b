// The instrumented simulator: kernels compiled with -fsanitize=thread call a function at every
// access to memory, and those functions (tsan_hooks.cc) are ours rather than ThreadSanitizer's.
//
// It finds, and reports as any other failure of a kernel, naming the kernel, both threads and both
// source lines (with addr2line in the PATH; else as addresses):
//   * races: two accesses to the same bytes by different threads of the grid, at least one a write,
//     not both atomic, with nothing that orders them. What orders: __syncthreads, cluster_sync,
//     grid_sync, __syncwarp, released and acquired flags and mbarriers, atomics with __threadfence
//     on both sides. Shuffles, votes and matrix instructions exchange values and order no memory,
//     as the CUDA programming guide says.
//   * accesses outside device and shared memory allocations, reads too, to the byte.
// And it counts what kernels do.
//
// A cell of 4 bytes remembers four accesses, so a race with one long past may be missed; what is
// reported is one. Local variables are not watched, nor is constant data.
//
// Thread safety: grids of several host threads run one after the other.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace rondo::simt {

// Sums over all launches of a kernel.
struct KernelCounters {
  std::string kernel;
  uint64_t launches = 0;
  uint64_t blocks = 0;  // of the launch with the most
  uint64_t global_bytes_read = 0, global_bytes_written = 0;
  uint64_t shared_bytes_read = 0, shared_bytes_written = 0;
  uint64_t remote_bytes_read = 0, remote_bytes_written = 0;  // shared memory of other blocks
  uint64_t async_bytes = 0;                                  // by cp.async, counted above as well
  uint64_t atomics = 0;                                      // operations, flags included
  uint64_t matrix_instructions = 0;                          // mma of a warp
  // How many times the block, or the warp, with the most of them in each launch had to wait for
  // others.
  uint64_t block_barriers = 0, cluster_barriers = 0, grid_barriers = 0;
  uint64_t warp_exchanges = 0;
  std::set<size_t> shared_memory = {};  // bytes a block, of all launches
};

struct Traffic {
  uint64_t bytes_read = 0, bytes_written = 0;
};

// Makes the simulator run instrumented from now on. Before anything is allocated on it.
void instrument();

// In the order of their first launch.
std::vector<KernelCounters> counters();
void reset_counters();
std::string to_json(const KernelCounters& counters);

// Counts traffic to and from one range of device memory, until the next call.
void watch(const void* begin, size_t bytes);
Traffic watched();

}  // namespace rondo::simt
