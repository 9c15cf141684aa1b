// The persistent LSTM kernels over the whole grid: what forward and backward share; for
// lstm_grid_*.cu.
//
// A block owns a few cells of one direction and holds the part of R that they need in registers,
// for the whole sequence. What the blocks of a direction tell each other per step lies in an output
// of the op (y, or dgates); a flag per block says how many steps it has finished, and a block waits
// until all of its direction have finished the step before. The launch is cooperative, so that all
// blocks are resident. Different directions never wait for each other.
//
// The products (lstm_grid_product.h) are of the block's rows of weights with 8 sequences at a time.
// Each warp sums over an eighth of k, and the eight parts are added up in order.
#pragma once

#include "kernels/lstm/gpu/lstm_arrays.h"
#include "kernels/lstm/gpu/lstm_mma.h"

namespace rondo::RONDO_GPU {
namespace grid {

constexpr int threads = 256, warps = 8;
constexpr int tile_sequences = 8, tiles = 2, pass_sequences = tiles * tile_sequences;

// The frame a step visits, its first row and its active sequences; 0 of them outside the batch.
struct Step {
  int64_t frame, row, active;
};

__device__ inline Step step_at(const PackedView& layout, int64_t d, int64_t step) {
  const int64_t frames = layout.extent->frames;
  if (step < 0 || step >= frames) return {0, 0, 0};
  const int64_t t = d == 0 ? step : frames - 1 - step;
  return {t, layout.row_offsets[t], layout.batch_sizes[t]};
}

// flags[d][block]: steps finished. Zero before the launch.
struct Flags {
  uint32_t* of_direction;
  int blocks;

  __device__ Flags(uint32_t* flags, int64_t d)
      : of_direction(flags + d * gridDim.x), blocks(static_cast<int>(gridDim.x)) {}

  // This block has finished `steps`; what its threads wrote before is visible to whoever sees it.
  __device__ void announce(uint32_t steps) const {
    __syncthreads();
    if (threadIdx.x == 0) store_release(of_direction + blockIdx.x, steps);
  }
  // All blocks of the direction have; one thread per block watches.
  __device__ void wait_for(uint32_t steps) const {
    for (int block = static_cast<int>(threadIdx.x); block < blocks; block += threads) {
      poll_until([&] { return load_acquire(of_direction + block) >= steps; });
    }
    __syncthreads();
  }
};

// A thread's cell, and its sequence within a pass; -1 for threads without a cell.
template <int cells>
struct Place {
  static constexpr int round = pass_sequences;
  int64_t d, unit;
  int cell, sequence;

  __device__ explicit Place(int64_t H)
      : d(blockIdx.y),
        unit(int64_t{blockIdx.x} * cells + static_cast<int>(threadIdx.x) % cells),
        cell(static_cast<int>(threadIdx.x) % cells),
        sequence(static_cast<int>(threadIdx.x) / cells) {
    if (sequence >= pass_sequences || unit >= H) sequence = -1;
  }
  __device__ bool has_cell() const { return sequence >= 0; }
  __device__ int64_t sequence_of(int64_t first) const {
    return sequence < 0 ? -1 : first + sequence;
  }
};

// One row of sums from one warp, for each sequence of a tile. The odd width spreads rows over
// banks.
using PartRow = float[tile_sequences + 1];

// Parts of a pass's sums from each warp; two buffers, so that one barrier per pass is enough.
template <int rows>
struct Parts {
  PartRow part[2][warps][tiles][rows];
};

// The sum of row `row` for sequence n of the pass, over the warps in order.
template <int rows>
__device__ float total(const Parts<rows>& s, int buffer, int row, int n) {
  float sum = 0;
  RONDO_UNROLL_ALL
  for (int warp = 0; warp < warps; ++warp) {
    sum += s.part[buffer][warp][n / tile_sequences][row][n % tile_sequences];
  }
  return sum;
}

// All blocks of both directions must be resident at once.
inline LaunchConfig configuration(const char* name, const LstmDims& dims, int cells,
                                  size_t shared_bytes) {
  return {.kernel = name,
          .grid = {blocks_for(dims.hidden, cells), static_cast<unsigned>(dims.directions)},
          .block = {threads},
          .shared_bytes = shared_bytes,
          .cooperative = true};
}

// What is exchanged is loaded 16 bytes at once.
inline bool starts_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

template <class Kernel>
bool fits(const LaunchConfig& config, Kernel kernel) {
  return static_cast<int64_t>(config.grid.count()) <= resident_blocks(config, kernel);
}

}  // namespace grid
}  // namespace rondo::RONDO_GPU
