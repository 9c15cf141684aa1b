#include "kernels/base/gpu/launch.h"

#include "kernels/base/error.h"

namespace rondo {

std::string describe(const LaunchConfig& c) {
  return str(c.kernel, "<<<grid ", c.grid.x, "x", c.grid.y, "x", c.grid.z, ", block ", c.block.x,
             "x", c.block.y, "x", c.block.z, ", ", c.shared_bytes, " B shared",
             c.cluster > 1 ? str(", clusters of ", c.cluster) : "",
             c.cooperative ? ", cooperative" : "", ">>>");
}

void check_launch(const LaunchConfig& c) {
  RONDO_CHECK(c.grid.count() > 0 && c.block.count() > 0, describe(c), ": nothing to launch");
  RONDO_CHECK(c.block.count() <= max_block_threads && c.block.z <= 64, describe(c),
              ": a block has at most ", max_block_threads, " threads (z: 64)");
  RONDO_CHECK(c.grid.x < (1u << 31) && c.grid.y < (1u << 16) && c.grid.z < (1u << 16), describe(c),
              ": a grid has at most 2^31-1 x 65535 x 65535 blocks");
  RONDO_CHECK(c.shared_bytes <= max_shared_bytes, describe(c), ": a block has at most ",
              max_shared_bytes, " bytes of shared memory");
  RONDO_CHECK(c.cluster >= 1 && c.cluster <= max_cluster_blocks && c.grid.x % c.cluster == 0,
              describe(c), ": a cluster has 1 to ", max_cluster_blocks,
              " blocks and divides the grid's x");
}

}  // namespace rondo
