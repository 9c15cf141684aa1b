// The shape of a kernel launch, for a GPU and for the simulator alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace rondo {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr uint64_t count() const { return uint64_t{x} * y * z; }
};

// The limits the simulator enforces; those of sm_90.
inline constexpr unsigned max_block_threads = 1024;
inline constexpr size_t max_shared_bytes = 227 * 1024;
inline constexpr unsigned max_cluster_blocks = 16;          // more than 8 is non-portable
inline constexpr unsigned simulated_multiprocessors = 132;  // bounds cooperative launches

struct LaunchConfig {
  const char* kernel = "";  // its name, for messages
  Dim3 grid = {}, block = {};
  size_t shared_bytes = 0;   // sizeof the struct the kernel asks shared<T>() for
  unsigned cluster = 1;      // blocks per cluster along x; divides grid.x
  bool cooperative = false;  // grid_sync() may be called: all blocks are resident at once
};

// "name<<<grid 4x1x1, block 128x1x1, 512 B shared, clusters of 2, cooperative>>>"
std::string describe(const LaunchConfig& config);

// Throws Error naming the kernel and the limit that the launch breaks.
void check_launch(const LaunchConfig& config);

// n divided by `size`, rounded up: how many blocks cover n threads.
constexpr unsigned blocks_for(int64_t n, int64_t size) {
  return static_cast<unsigned>((n + size - 1) / size);
}

}  // namespace rondo
