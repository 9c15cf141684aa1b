// The products of the persistent LSTM kernels over the whole grid: a block's rows of weights, kept
// where they are for the whole sequence, times the rows of 8 sequences; each warp over an eighth of
// k. For lstm_grid_*.cu.
#pragma once

#include "kernels/lstm/lstm_grid_cells.h"

namespace rondo::RONDO_GPU {
namespace grid {

// Columns each warp sums over come in tiles of 16; k_tiles of them cover `width` columns, as a
// power of two.
inline int k_tiles_for(int64_t width) {
  int k_tiles = 1;
  while (int64_t{k_tiles} * 16 * warps < width) k_tiles *= 2;
  return k_tiles;
}

// ---- bf16: mma_m16n8k16 with the weights as A, in registers, and 8 sequences as B ----

// The B fragment of a row of bf16 (absent: zeros) at columns k, k + 1 and k + 8, k + 9; zeros at or
// past `width`. `pairs`: all rows start at even elements, and width is even.
template <bool pairs>
__device__ void load_b(const bf16* row, int k, int width, uint32_t (&b)[2]) {
  RONDO_UNROLL_ALL
  for (int i = 0; i < 2; ++i, k += 8) {
    if constexpr (pairs) {
      b[i] = row && k < width ? load_pair(row + k) : 0u;
    } else {
      const uint32_t low = row && k < width ? row[k].bits : 0u;
      const uint32_t high = row && k + 1 < width ? row[k + 1].bits : 0u;
      b[i] = low | high << 16;
    }
  }
}

template <int row_tiles, int k_tiles>
struct MmaProduct {
  using Element = bf16;
  static constexpr int rows = 16 * row_tiles;
  struct Shared {
    Stage stages[warps];
  };

  uint32_t a[row_tiles][k_tiles][4];

  // at(row, k) is a weight, or zero.
  template <Adjacent adjacent, class At>
  __device__ void load(Shared& s, At at) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      load_fragments<adjacent>(
          s.stages[warp], [&](int row, int k) { return at(i * 16 + row, warp * k_tiles * 16 + k); },
          a[i]);
    }
  }

  // This warp's part for one pass: row(n) is where sequence n's row starts, n < pass_sequences.
  // `pairs`: all rows start at even elements, and width is even.
  template <bool pairs, class Row>
  __device__ void multiply(Shared&, Row row, int width, PartRow (*part)[rows]) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int group = lane / 4, member = lane % 4;
    // Where the weights leave registers for them, the loads of all tiles are in flight at once.
    [[maybe_unused]] constexpr int at_once = row_tiles * k_tiles <= 16 ? tiles : 1;
    RONDO_UNROLL(at_once)
    for (int tile = 0; tile < tiles; ++tile) {
      const bf16* from = row(tile * tile_sequences + group);
      // Even and odd k tiles are chains of dependent products of their own.
      float sum[2][row_tiles][4] = {};
      RONDO_UNROLL_ALL
      for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
        uint32_t b[2];
        load_b<pairs>(from, (warp * k_tiles + k_tile) * 16 + 2 * member, width, b);
        RONDO_UNROLL_ALL
        for (int i = 0; i < row_tiles; ++i) mma_m16n8k16(sum[k_tile % 2][i], a[i][k_tile], b);
      }
      RONDO_UNROLL_ALL
      for (int i = 0; i < row_tiles; ++i) {
        RONDO_UNROLL_ALL
        for (int j = 0; j < 4; ++j) {
          part[tile][i * 16 + group + j / 2 * 8][2 * member + j % 2] = sum[0][i][j] + sum[1][i][j];
        }
      }
    }
  }
};

// ---- f32: multiply-adds with the weights in shared memory ----

struct Four {
  float v[4];
};
__device__ inline Four load_four(const float* from) {
  Four four;
  memcpy(&four, __builtin_assume_aligned(from, 16), sizeof four);
  return four;
}

// A lane has one row of weights and all sequences of a tile; where there are fewer rows than lanes,
// lanes share k.
template <int rows_, int k_tiles>
struct FmaProduct {
  using Element = float;
  static constexpr int rows = rows_, shares = 32 / rows;
  static constexpr int slice = 16 * k_tiles, piece = slice < 64 ? slice : 64;  // columns
  struct Shared {
    alignas(16) float weights[rows][warps * slice + 4];
    alignas(16) float stage[warps][tile_sequences][piece + 4];
  };

  template <Adjacent adjacent, class At>
  __device__ void load(Shared& s, At at) {
    constexpr int width = warps * slice;
    for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += threads) {
      const int row = adjacent == Adjacent::columns ? i / width : i % rows;
      const int k = adjacent == Adjacent::columns ? i % width : i / rows;
      s.weights[row][k] = at(row, k);
    }
    __syncthreads();
  }

  template <bool pairs, class Row>
  __device__ void multiply(Shared& s, Row row, int width, PartRow (*part)[rows]) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int mine = lane % rows, share = lane / rows;
    auto& stage = s.stage[warp];
    for (int tile = 0; tile < tiles; ++tile) {
      float sum[tile_sequences] = {};
      for (int first = warp * slice; first < (warp + 1) * slice; first += piece) {
        __syncwarp();
        for (int n = 0; n < tile_sequences; ++n) {
          const float* from = row(tile * tile_sequences + n);
          for (int k = lane; k < piece; k += 32) {
            stage[n][k] = from && first + k < width ? from[first + k] : 0.0f;
          }
        }
        __syncwarp();
        for (int k = 4 * share; k < piece; k += 4 * shares) {
          const Four weight = load_four(&s.weights[mine][first + k]);
          RONDO_UNROLL_ALL
          for (int n = 0; n < tile_sequences; ++n) {
            const Four x = load_four(&stage[n][k]);
            for (int i = 0; i < 4; ++i) sum[n] += weight.v[i] * x.v[i];
          }
        }
      }
      RONDO_UNROLL_ALL
      for (int n = 0; n < tile_sequences; ++n) {
        for (int apart = rows; apart < 32; apart *= 2) {
          sum[n] += __shfl_xor_sync(~0u, sum[n], apart);
        }
        if (share == 0) part[tile][mine][n] = sum[n];
      }
    }
  }
};

}  // namespace grid
}  // namespace rondo::RONDO_GPU
