// Weights as fragments of tensor core products, for the persistent LSTM kernels: R never changes
// during a sequence, so a warp lays its part out once and keeps it in registers. For *.cu files of
// kernels/lstm.
#pragma once

#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {

// bf16 that are copied at once: 16 bytes, aligned.
constexpr int chunk_elements = 8;
__device__ inline void copy_chunk(void* to, const void* from) {
  memcpy(__builtin_assume_aligned(to, 16), __builtin_assume_aligned(from, 16),
         chunk_elements * sizeof(uint16_t));
}

// Two adjacent bf16, the first at an even index.
__device__ inline uint32_t load_pair(const void* from) { return load_words<4>(from).w[0]; }

// Where a warp lays out 16 rows of weights, 64 columns at a time, on their way to registers; the
// padding spreads the rows over the banks.
constexpr int stage_columns = 64;
struct Stage {
  alignas(16) uint16_t rows[16][stage_columns + chunk_elements];
};

enum class Adjacent : uint8_t { columns, rows };  // in memory

// The A fragments of mma_m16n8k16 (layout: PTX manual) of a warp's 16 x (16 k_tiles) matrix of
// bf16, element by element at(row, k). All lanes of a warp.
template <Adjacent adjacent, int k_tiles, class At>
__device__ void load_fragments(Stage& stage, At at, uint32_t (&a)[k_tiles][4]) {
  constexpr int tiles_per_stage = stage_columns / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, member = lane % 4;
  RONDO_UNROLL_ALL
  for (int first = 0; first < k_tiles; first += tiles_per_stage) {
    __syncwarp();
    for (int i = lane; i < 16 * stage_columns; i += 32) {
      const int row = adjacent == Adjacent::columns ? i / stage_columns : i % 16;
      const int k = adjacent == Adjacent::columns ? i % stage_columns : i / 16;
      if (first * 16 + k < k_tiles * 16) stage.rows[row][k] = at(row, first * 16 + k).bits;
    }
    __syncwarp();
    RONDO_UNROLL_ALL
    for (int k_tile = first; k_tile < first + tiles_per_stage && k_tile < k_tiles; ++k_tile) {
      RONDO_UNROLL_ALL
      for (int i = 0; i < 4; ++i) {
        const int row = group + (i % 2) * 8;
        const int k = (k_tile - first) * 16 + 2 * member + (i / 2) * 8;
        a[k_tile][i] = load_pair(&stage.rows[row][k]);
      }
    }
  }
}

}  // namespace rondo::RONDO_GPU
