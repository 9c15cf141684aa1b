// The persistent LSTM kernels in thread block clusters: what forward and backward share; for
// lstm_cluster_*.cu.
//
// A cluster holds all of one direction's R in the registers of its blocks, for the whole sequence,
// and owns a few sequences: clusters never talk to each other, and each stops at its own longest
// sequence. Block `rank` owns 32 cells, their states and their four gates. Products are
// mma_m16n8k16 with the weights as A and the sequences as B (8 to a tile).
#pragma once

#include <type_traits>

#include "kernels/lstm/lstm_arrays.h"
#include "kernels/lstm/lstm_mma.h"

namespace rondo::RONDO_GPU {
namespace cluster {

constexpr int threads = 256, warps = 8;
constexpr int block_cells = 32, tile_sequences = 8;

// The sequences of a cluster: [first, first + count), `frames` long at most.
struct Share {
  int64_t first;
  int count;
  int64_t frames;
};

// `blocks` to a cluster, `sequences` for each.
__device__ inline Share share_of(const PackedView& layout, int blocks, int sequences) {
  const int64_t first = int64_t{static_cast<int>(blockIdx.x) / blocks} * sequences;
  const int64_t left = layout.extent->sequences - first;
  return {first, static_cast<int>(left < sequences ? left : sequences),
          left > 0 ? int64_t{layout.lengths[first]} : 0};
}

// The frame a step visits.
struct Step {
  int64_t frame, row;  // row of the cluster's first sequence
  int active;          // sequences of the cluster; 0 before the first step and after the last
};

__device__ inline Step step_at(const PackedView& layout, const Share& share, int64_t d,
                               int64_t step) {
  if (step < 0 || step >= share.frames) return {0, 0, 0};
  const int64_t t = d == 0 ? step : share.frames - 1 - step;
  const int64_t active = layout.batch_sizes[t] - share.first;
  return {t, layout.row_offsets[t] + share.first,
          static_cast<int>(active < share.count ? active : share.count)};
}

// Cluster sizes that hold H cells, 32 to a block.
inline int blocks_for_hidden(int64_t hidden) {
  return hidden <= 64 ? 2 : hidden <= 128 ? 4 : hidden <= 256 ? 8 : 16;
}

// Calls f(blocks, tiles) with integral constants: the cluster size for H, and the tiles of
// sequences per cluster: as few as let all clusters be resident at once.
template <class Resident, class F>
void with_geometry(int64_t hidden, int directions, int64_t sequences, Resident resident, F f) {
  const auto with_blocks = [&](auto blocks) {
    const auto fits = [&](auto tiles) {
      const int64_t per_cluster = tile_sequences * tiles;
      return directions * ((sequences + per_cluster - 1) / per_cluster) <= resident(blocks, tiles);
    };
    if (fits(std::integral_constant<int, 1>())) return f(blocks, std::integral_constant<int, 1>());
    if (fits(std::integral_constant<int, 2>())) return f(blocks, std::integral_constant<int, 2>());
    return f(blocks, std::integral_constant<int, 4>());
  };
  switch (blocks_for_hidden(hidden)) {
    case 2:
      return with_blocks(std::integral_constant<int, 2>());
    case 4:
      return with_blocks(std::integral_constant<int, 4>());
    case 8:
      return with_blocks(std::integral_constant<int, 8>());
    default:
      return with_blocks(std::integral_constant<int, 16>());
  }
}

// A launch of enough clusters for all sequences and directions.
inline LaunchConfig configuration(const char* name, int blocks, int tiles, int directions,
                                  int64_t sequences, size_t shared_bytes) {
  const unsigned clusters = blocks_for(sequences, int64_t{tiles} * tile_sequences);
  return {.kernel = name,
          .grid = {clusters * static_cast<unsigned>(blocks), static_cast<unsigned>(directions)},
          .block = {threads},
          .shared_bytes = shared_bytes,
          .cluster = static_cast<unsigned>(blocks)};
}

// Whether this machine runs clusters, and the kernel was compiled for it.
template <class... Parameters>
bool cluster_machine(void (*kernel)(Parameters...), size_t shared_bytes) {
  return resident_clusters(configuration("lstm cluster", 2, 1, 1, 1, shared_bytes), kernel) > 0;
}

}  // namespace cluster
}  // namespace rondo::RONDO_GPU
