// The products of the persistent LSTM kernels in clusters: a warp's rows of weights, kept in
// registers for the whole sequence, times the numbers of 8 sequences in shared memory. For
// lstm_cluster_*.cu.
#pragma once

#include "kernels/lstm/gpu/lstm_cluster.h"
#include "kernels/lstm/gpu/lstm_tf32.h"

namespace rondo::RONDO_GPU {
namespace cluster {

// 16 row_tiles rows (A) times 8 sequences (B). A sum is that of `chains` sums over every
// chains-th tile of k, which do not wait for each other.
//
//   load(shared, at)            at(row, k) is a weight, or zero; all threads of the block
//   multiply(shared, row, sum)  all lanes of a warp; row: the `columns` numbers of sequence
//                               lane / 4, in shared memory. sum[i]: the fragment of C of row tile i
template <class T, int row_tiles, int columns, int chains>
struct Product;

// Numbers after a row in shared memory, which spread the sequences over the banks for what a lane
// of multiply() loads at once.
template <class T>
constexpr int padding = sizeof(T) == sizeof(bf16) ? 8 : 16;

template <int row_tiles, int chains>
__device__ void add_chains(float (&chain)[chains][row_tiles][4], float (&sum)[row_tiles][4]) {
  RONDO_UNROLL_ALL
  for (int apart = 1; apart < chains; apart *= 2) {
    RONDO_UNROLL_ALL
    for (int c = 0; c + apart < chains; c += 2 * apart) {
      RONDO_UNROLL_ALL
      for (int i = 0; i < row_tiles * 4; ++i)
        chain[c][i / 4][i % 4] += chain[c + apart][i / 4][i % 4];
    }
  }
  RONDO_UNROLL_ALL
  for (int i = 0; i < row_tiles * 4; ++i) sum[i / 4][i % 4] = chain[0][i / 4][i % 4];
}

// ---- bf16: mma_m16n8k16 ----

template <int row_tiles, int columns, int chains>
struct Product<bf16, row_tiles, columns, chains> {
  static constexpr int k_tiles = columns / 16;
  struct Shared {
    Stage stages[warps];
  };

  uint32_t a[row_tiles][k_tiles][4];

  template <Adjacent adjacent, class At>
  __device__ void load(Shared& s, At at) {
    Stage& stage = s.stages[static_cast<int>(threadIdx.x) / 32];
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      load_fragments<adjacent>(
          stage, [&](int row, int k) { return at(i * 16 + row, k); }, a[i]);
    }
  }

  __device__ void multiply(const Shared&, const uint16_t* row, float (&sum)[row_tiles][4]) const {
    const uint16_t* from = row + 2 * (static_cast<int>(threadIdx.x) % 4);
    float chain[chains][row_tiles][4] = {};
    RONDO_UNROLL_ALL
    for (int k = 0; k < k_tiles; ++k) {
      const uint32_t b[2] = {load_pair(from + k * 16), load_pair(from + k * 16 + 8)};
      RONDO_UNROLL_ALL
      for (int i = 0; i < row_tiles; ++i) mma_m16n8k16(chain[k % chains][i], a[i][k], b);
    }
    add_chains(chain, sum);
  }
};

// ---- f32: three mma_m16n8k8_tf32 for one ----
//
// The weights are split on the way. Which column is the k-th of a product of 8 is free: a lane's
// two k of two products are four neighbours in memory, so k goes in tiles of 16 here too.
template <int row_tiles, int columns, int chains>
struct Product<float, row_tiles, columns, chains> {
  static constexpr int k_tiles = columns / 16;
  static constexpr int stage_tiles = 2, stage_width = stage_tiles * 16;
  struct Shared {
    // tf32_bits, where the compiler cannot know it: it would split the weights before the time
    // loop, into twice as many registers.
    uint32_t high_bits;
    // Where a warp lays out its weights on their way to registers, as Stage.
    alignas(16) uint32_t stages[warps][16][stage_width + 4];
  };

  uint32_t a[row_tiles][2 * k_tiles][4];

  template <Adjacent adjacent, class At>
  __device__ void load(Shared& s, At at) {
    if (threadIdx.x == 0) s.high_bits = tf32_bits;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    auto& stage = s.stages[warp];
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      RONDO_UNROLL_ALL
      for (int first = 0; first < k_tiles; first += stage_tiles) {
        __syncwarp();
        for (int n = lane; n < 16 * stage_width; n += 32) {
          const int row = adjacent == Adjacent::columns ? n / stage_width : n % 16;
          const int k = adjacent == Adjacent::columns ? n % stage_width : n / 16;
          stage[row][k] = presplit_tf32(at(i * 16 + row, first * 16 + k));
        }
        __syncwarp();
        RONDO_UNROLL_ALL
        for (int n = 0; n < stage_tiles * 8; ++n) {
          const int row = lane / 4 + n % 2 * 8, k = n / 8 * 16 + 4 * (lane % 4) + n / 2 % 4;
          a[i][first * 2 + n / 4][n % 4] = stage[row][k];
        }
      }
    }
  }

  __device__ void multiply(const Shared& s, const float* row, float (&sum)[row_tiles][4]) const {
    const uint32_t high_bits = *static_cast<const volatile uint32_t*>(&s.high_bits);
    const float* from = row + 4 * (static_cast<int>(threadIdx.x) % 4);
    float high[chains][row_tiles][4] = {}, low[chains][row_tiles][4] = {};
    RONDO_UNROLL_ALL
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
      const Four x = *reinterpret_cast<const Four*>(from + k_tile * 16);
      RONDO_UNROLL_ALL
      for (int j = 0; j < 2; ++j) {
        uint32_t b_high[2], b_low[2];
        split_tf32(x.v[2 * j], b_high[0], b_low[0]);
        split_tf32(x.v[2 * j + 1], b_high[1], b_low[1]);
        const int k = 2 * k_tile + j;
        RONDO_UNROLL_ALL
        for (int i = 0; i < row_tiles; ++i) {
          uint32_t a_high[4], a_low[4];
          RONDO_UNROLL_ALL
          for (int n = 0; n < 4; ++n) {
            a_high[n] = a[i][k][n] & high_bits;
            a_low[n] = __float_as_uint(__uint_as_float(a[i][k][n]) - __uint_as_float(a_high[n]));
          }
          mma_m16n8k8_tf32(low[k % chains][i], a_low, b_high);
          mma_m16n8k8_tf32(low[k % chains][i], a_high, b_low);
          mma_m16n8k8_tf32(high[k % chains][i], a_high, b_high);
        }
      }
    }
    float low_sum[row_tiles][4];
    add_chains(low, low_sum);
    add_chains(high, sum);
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles * 4; ++i) sum[i / 4][i % 4] += low_sum[i / 4][i % 4];
  }
};

}  // namespace cluster
}  // namespace rondo::RONDO_GPU
