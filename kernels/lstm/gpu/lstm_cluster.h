// The persistent LSTM kernels in thread block clusters: what forward and backward share; for
// lstm_cluster_*.cu.
//
// A cluster holds all of one direction's R in the registers of its blocks, for the whole sequence,
// and owns a few sequences: clusters never talk to each other, and each stops at its own longest
// sequence. Block `rank` owns 32 cells, their states and their four gates. Products
// (lstm_cluster_product.h) have the weights as A and the sequences as B (8 to a tile).
//
// A step ends with a barrier of the cluster in two parts. A block arrives as soon as what other
// blocks wait for is stored. While its arrival is on its way it stores outputs, which would have
// held the arrival up, and asks for the inputs of the next step. Then it waits.
#pragma once

#include <type_traits>

#include "kernels/lstm/gpu/lstm_arrays.h"
#include "kernels/lstm/gpu/lstm_mma.h"

namespace rondo::RONDO_GPU {
namespace cluster {

constexpr int threads = 256, warps = 8;
constexpr int block_cells = 32, tile_sequences = 8;

// A number of compute type T in shared memory, where nothing is constructed.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bf16>, uint16_t, T>;
__device__ inline uint16_t to_stored(bf16 x) { return x.bits; }
__device__ inline float to_stored(float x) { return x; }
__device__ inline bf16 from_stored(uint16_t bits) {
  bf16 x;
  x.bits = bits;
  return x;
}
__device__ inline float from_stored(float x) { return x; }

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
  int64_t row;  // of the cluster's first sequence
  int active;   // sequences of the cluster; 0 before the first step and after the last
};

// The same as the layout has it. A thread that looks at what it has just loaded waits for memory,
// so the time loops load this a step before they look (step_of).
struct Frame {
  int32_t row, sequences;
};

__device__ inline Frame load_frame(const PackedView& layout, const Share& share, int64_t d,
                                   int64_t step) {
  if (step < 0 || step >= share.frames) return {0, 0};
  const int64_t t = d == 0 ? step : share.frames - 1 - step;
  return {layout.row_offsets[t], layout.batch_sizes[t]};
}

__device__ inline Step step_of(const Share& share, const Frame& frame) {
  const int64_t active = frame.sequences - share.first;
  return {frame.row + share.first, static_cast<int>(active < 0             ? 0
                                                    : active < share.count ? active
                                                                           : share.count)};
}

// Cluster sizes that hold H cells, 32 to a block.
inline int blocks_for_hidden(int64_t hidden) {
  return hidden <= 64 ? 2 : hidden <= 128 ? 4 : hidden <= 256 ? 8 : 16;
}

// What the registers hold beside R, of compute type T.
template <class T>
constexpr int most_blocks = sizeof(T) == sizeof(bf16) ? 16 : 8;
template <class T>
constexpr int most_tiles = sizeof(T) == sizeof(bf16) ? 4 : 2;

// Calls f(blocks, tiles) with integral constants: the cluster size for H, and the tiles of
// sequences per cluster: as few as let all clusters be resident at once; with most_tiles, clusters
// may come one after the other.
template <class T, class Resident, class F>
void with_geometry(int64_t hidden, int directions, int64_t sequences, Resident resident, F f) {
  const auto with_blocks = [&](auto blocks) {
    const auto fits = [&](auto tiles) {
      const int64_t per_cluster = tile_sequences * tiles;
      return directions * ((sequences + per_cluster - 1) / per_cluster) <= resident(blocks, tiles);
    };
    if (fits(std::integral_constant<int, 1>())) return f(blocks, std::integral_constant<int, 1>());
    if constexpr (most_tiles < T >> 2) {
      if (fits(std::integral_constant<int, 2>()))
        return f(blocks, std::integral_constant<int, 2>());
    }
    return f(blocks, std::integral_constant<int, most_tiles<T>>());
  };
  switch (blocks_for_hidden(hidden)) {
    case 2:
      return with_blocks(std::integral_constant<int, 2>());
    case 4:
      return with_blocks(std::integral_constant<int, 4>());
    case 8:
      return with_blocks(std::integral_constant<int, 8>());
    default:
      return with_blocks(std::integral_constant<int, most_blocks<T>>());
  }
}

// A launch of enough clusters for all sequences and directions; where there are no sequences, of
// one, so that a machine can be asked whether it fits.
inline LaunchConfig configuration(const char* name, int blocks, int tiles, int directions,
                                  int64_t sequences, size_t shared_bytes) {
  const unsigned clusters =
      blocks_for(sequences > 0 ? sequences : 1, int64_t{tiles} * tile_sequences);
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
