// The product at the heart of the LSTM's time loops: a few rows times one packed panel, per
// instruction set. For lstm_loop_simd.cc.
#pragma once

#include "kernels/base/simd.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

// Rows of a tile: with 4 vectors each, the accumulators, one panel row and a broadcast fill the
// register file (32 registers with AVX-512, else 16).
#if defined(__AVX512F__)
constexpr int max_tile_rows = 6, lanes_of_one_row = 4, lanes_of_two_rows = 2;
#else
constexpr int max_tile_rows = 3, lanes_of_one_row = 2, lanes_of_two_rows = 1;
#endif

// A panel that comes from L3 is used as fast as it arrives only when it is asked for early: 8 KiB
// ahead gave 15-25 % for one to four rows, and cost nothing when the panel was in L2.
constexpr int64_t prefetch_distance = 8192;
template <class A>
[[gnu::always_inline]] inline void prefetch_ahead(const A* row) {
#pragma GCC unroll 4
  for (int64_t line = 0; line < 4 * W * 4; line += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(row) + prefetch_distance + line);
  }
}

// out[r][v] = sum over k of a[r][k] * panel[k][v]. With few rows, `lanes` independent partial sums
// hide the latency of the multiply-add.
template <int rows, int lanes>
[[gnu::always_inline]] inline void tile_sums(const float* a, int64_t lda, const float* panel,
                                             int64_t depth, float* out) {
  vf sums[lanes][rows][4] = {};
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
#pragma GCC unroll 8
    for (int l = 0; l < lanes; ++l) {
      const float* b = panel + (k + l) * 4 * W;
      prefetch_ahead(b);
      const vf b0 = load(b), b1 = load(b + W), b2 = load(b + 2 * W), b3 = load(b + 3 * W);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const vf x = broadcast(a[r * lda + k + l]);
        sums[l][r][0] += x * b0;
        sums[l][r][1] += x * b1;
        sums[l][r][2] += x * b2;
        sums[l][r][3] += x * b3;
      }
    }
  }
  for (; k < depth; ++k) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < 4; ++v) {
        sums[0][r][v] += broadcast(a[r * lda + k]) * load(panel + (k * 4 + v) * W);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      vf total = sums[0][r][v];
      for (int l = 1; l < lanes; ++l) total += sums[l][r][v];
      store(out + (r * 4 + v) * W, total);
    }
  }
}

#if defined(__AVX512BF16__)
// As above on bf16: panel [k / 2][4][W][2], depth rounded up to whole pairs.
template <int rows, int lanes>
[[gnu::always_inline]] inline void tile_sums(const uint16_t* a, int64_t lda, const uint16_t* panel,
                                             int64_t depth, float* out) {
  const int64_t pairs = (depth + 1) / 2;
  __m512 sums[lanes][rows][4] = {};
  const auto step = [&](int l, int64_t k) [[gnu::always_inline]] {
    const uint16_t* b = panel + k * 8 * W;
    prefetch_ahead(b);
    __m512bh m[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) m[v] = (__m512bh)_mm512_loadu_si512(b + v * 2 * W);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      int32_t pair;
      __builtin_memcpy(&pair, a + r * lda + 2 * k, sizeof pair);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[l][r][v] = _mm512_dpbf16_ps(sums[l][r][v], x, m[v]);
    }
  };
  int64_t k = 0;
  for (; k + lanes <= pairs; k += lanes) {
#pragma GCC unroll 8
    for (int l = 0; l < lanes; ++l) step(l, k + l);
  }
  for (; k < pairs; ++k) step(0, k);
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      __m512 total = sums[0][r][v];
      for (int l = 1; l < lanes; ++l) total += sums[l][r][v];
      _mm512_storeu_ps(out + (r * 4 + v) * W, total);
    }
  }
}
#endif

template <class A>
void tile_product(int64_t rows, const A* a, int64_t lda, const A* panel, int64_t depth,
                  float* out) {
  switch (rows) {
    case 1:
      return tile_sums<1, lanes_of_one_row>(a, lda, panel, depth, out);
    case 2:
      return tile_sums<2, lanes_of_two_rows>(a, lda, panel, depth, out);
    case 3:
      return tile_sums<3, 1>(a, lda, panel, depth, out);
#if defined(__AVX512F__)
    case 4:
      return tile_sums<4, 1>(a, lda, panel, depth, out);
    case 5:
      return tile_sums<5, 1>(a, lda, panel, depth, out);
    case 6:
      return tile_sums<6, 1>(a, lda, panel, depth, out);
#endif
    default:
      __builtin_unreachable();
  }
}

int64_t tile_count(int64_t rows) { return (rows + max_tile_rows - 1) / max_tile_rows; }
int64_t tile_begin(int64_t rows, int64_t tile) { return rows * tile / tile_count(rows); }

}  // namespace
}  // namespace rondo::RONDO_ISA
