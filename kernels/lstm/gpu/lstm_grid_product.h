// The products of the persistent LSTM kernels over the whole grid: a block's rows of weights, kept
// where they are for the whole sequence, times the rows of a pass's sequences; each warp over an
// eighth of k. For lstm_grid_*.cu.
#pragma once

#include "kernels/lstm/gpu/lstm_grid_cells.h"
#include "kernels/lstm/gpu/lstm_tf32.h"

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
// past `width`. `aligned`: all rows start at even elements, and width is even.
template <bool aligned>
__device__ void load_b(const bf16* row, int k, int width, uint32_t (&b)[2]) {
  RONDO_UNROLL_ALL
  for (int i = 0; i < 2; ++i, k += 8) {
    if constexpr (aligned) {
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
  static constexpr int rows = 16 * row_tiles, loaded_at_once = 2;
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
  // `aligned`: all rows start at multiples of loaded_at_once elements, and width is one.
  template <bool aligned, class Row>
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
        load_b<aligned>(from, (warp * k_tiles + k_tile) * 16 + 2 * member, width, b);
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

// ---- f32: three TF32 products for one, 16 sequences as A and the weights as B ----

// row[k, k + 4); zeros at or past `width`, and where there is no row. `aligned`: as for
// MmaProduct::multiply.
template <bool aligned>
__device__ Four load_four(const float* row, int k, int width) {
  Four four = {};
  if constexpr (aligned) {
    if (row && k < width) four = *reinterpret_cast<const Four*>(row + k);
  } else {
    for (int i = 0; i < 4; ++i) four.v[i] = row && k + i < width ? row[k + i] : 0.0f;
  }
  return four;
}

// The weights are in shared memory, where each lane has its own fragments: in registers, the
// compiler would keep them split, which are twice as many and spill. Which column is the k-th of a
// product of 8 is free: a lane's two k of two products are four neighbours in memory.
template <int rows_, int k_tiles>
struct Tf32Product {
  using Element = float;
  static constexpr int rows = rows_, row_tiles = rows / 8, loaded_at_once = 4;
  // Independent sums, as many as keep the tensor cores busy.
  static constexpr int chains = row_tiles >= 4 ? 1 : 4 / row_tiles;
  static_assert(rows % 8 == 0 && pass_sequences == 16);
  struct Shared {
    Four weights[warps][k_tiles][row_tiles][32];
  };

  // at(row, k) is a weight, or zero.
  template <Adjacent, class At>
  __device__ void load(Shared& s, At at) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
      const int column = (warp * k_tiles + k_tile) * 16 + 4 * (lane % 4);
      for (int i = 0; i < row_tiles; ++i) {
        Four& four = s.weights[warp][k_tile][i][lane];
        for (int j = 0; j < 4; ++j) four.v[j] = at(i * 8 + lane / 4, column + j);
      }
    }
  }

  // As MmaProduct::multiply.
  template <bool aligned, class Row>
  __device__ void multiply(Shared& s, Row row, int width, PartRow (*part)[rows]) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int group = lane / 4, member = lane % 4;
    const float* from[2] = {row(group), row(group + 8)};
    Sums sums[chains] = {};
    // The loads of so many are in flight at once.
    [[maybe_unused]] constexpr int at_once = k_tiles < 8 ? k_tiles : 8;
    RONDO_UNROLL(at_once)
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
      const int column = (warp * k_tiles + k_tile) * 16 + 4 * member;
      const Four x[2] = {load_four<aligned>(from[0], column, width),
                         load_four<aligned>(from[1], column, width)};
      RONDO_UNROLL_ALL
      for (int i = 0; i < 2; ++i) {
        const float a[4] = {x[0].v[2 * i], x[1].v[2 * i], x[0].v[2 * i + 1], x[1].v[2 * i + 1]};
        const int chain = chains == 1 ? 0 : (k_tile % 2 * 2 + i) % chains;
        add_products(a, s.weights[warp][k_tile], 2 * i, sums[chain]);
      }
    }
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      RONDO_UNROLL_ALL
      for (int j = 0; j < 4; ++j) {
        float sum = 0;
        RONDO_UNROLL_ALL
        for (int chain = 0; chain < chains; ++chain) {
          sum += sums[chain].high[i][j] + sums[chain].low[i][j];
        }
        part[j / 2][i * 8 + 2 * member + j % 2][group] = sum;
      }
    }
  }

 private:
  struct Sums {
    float high[row_tiles][4], low[row_tiles][4];
  };

  // Adds the products of the weights' columns k and k + 1 of a lane's four.
  static __device__ void add_products(const float (&a)[4], const Four (&weights)[row_tiles][32],
                                      int k, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    uint32_t a_high[4], a_low[4];
    RONDO_UNROLL_ALL
    for (int i = 0; i < 4; ++i) split_tf32(a[i], a_high[i], a_low[i]);
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      uint32_t b_high[2], b_low[2];
      const Four& four = weights[i][lane];
      RONDO_UNROLL_ALL
      for (int j = 0; j < 2; ++j) split_tf32(four.v[k + j], b_high[j], b_low[j]);
      mma_m16n8k8_tf32(sums.low[i], a_low, b_high);
      mma_m16n8k8_tf32(sums.low[i], a_high, b_low);
      mma_m16n8k8_tf32(sums.high[i], a_high, b_high);
    }
  }
};

}  // namespace grid
}  // namespace rondo::RONDO_GPU
