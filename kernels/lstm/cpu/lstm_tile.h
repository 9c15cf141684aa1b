// The product at the heart of the LSTM's time loops: a few rows times one packed panel, per
// instruction set. For lstm_loop_simd.cc.
//
// Every sum runs over k in order, in one accumulator, whatever the shape of the tile: a row has the
// same bits in every tile. So tiles may be cut, and dealt to threads, as suits the machine.
#pragma once

#include "kernels/base/cpu/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

// Rows of a tile: with 4 vectors each, the accumulators, one panel row and a broadcast fill the
// register file (32 registers with AVX-512, else 16).
#if defined(__AVX512F__)
constexpr int max_tile_rows = 6;
#else
constexpr int max_tile_rows = 3;
#endif

// One step of a sum takes 4 bytes of an operand: a float, or a pair of bf16.
template <class A>
constexpr int64_t sum_steps(int64_t depth) {
  return sizeof(A) == 2 ? (depth + 1) / 2 : depth;
}
[[gnu::always_inline]] inline vf operand_at(const float* a, int64_t step) {
  return broadcast(a[step]);
}
// Written out, so that the rounding is never left to the compiler's contraction.
[[gnu::always_inline]] inline vf add_product(vf sum, vf x, const float* b) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(x, load(b), sum);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(x, load(b), sum);
#else
  return sum + x * load(b);
#endif
}
#if defined(__AVX512BF16__)
[[gnu::always_inline]] inline vf operand_at(const uint16_t* a, int64_t step) {
  int32_t pair;
  __builtin_memcpy(&pair, a + 2 * step, sizeof pair);
  return float_of(broadcast_int(pair));
}
[[gnu::always_inline]] inline vf add_product(vf sum, vf x, const uint16_t* b) {
  return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, x), (__m512bh)_mm512_loadu_si512(b));
}
#endif

// A panel that comes from L3 is used as fast as it arrives only when it is asked for early: 8 KiB
// ahead gave 15-25 % for one to four rows, and cost nothing when the panel was in L2.
constexpr int64_t prefetch_distance = 8192;

// out[r][v] = sum over k of a[r][k] * panel[k][v].
template <int rows, class A>
[[gnu::always_inline]] inline void tile_sums(const A* a, int64_t lda, const A* panel, int64_t depth,
                                             float* out) {
  constexpr int64_t vector = W * 4 / sizeof(A);  // elements of A
  vf sums[rows][4] = {};
  for (int64_t k = 0; k < sum_steps<A>(depth); ++k, panel += 4 * vector) {
    const char* later = reinterpret_cast<const char*>(panel) + prefetch_distance;
#pragma GCC unroll 4
    for (int64_t line = 0; line < 4 * W * 4; line += 64) __builtin_prefetch(later + line);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const vf x = operand_at(a + r * lda, k);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[r][v] = add_product(sums[r][v], x, panel + v * vector);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) store(out + (r * 4 + v) * W, sums[r][v]);
  }
}

template <class A>
void tile_product(int64_t rows, const A* a, int64_t lda, const A* panel, int64_t depth,
                  float* out) {
  switch (rows) {
    case 0:
      return;
    case 1:
      return tile_sums<1>(a, lda, panel, depth, out);
    case 2:
      return tile_sums<2>(a, lda, panel, depth, out);
    case 3:
      return tile_sums<3>(a, lda, panel, depth, out);
#if defined(__AVX512F__)
    case 4:
      return tile_sums<4>(a, lda, panel, depth, out);
    case 5:
      return tile_sums<5>(a, lda, panel, depth, out);
    case 6:
      return tile_sums<6>(a, lda, panel, depth, out);
#endif
    default:
      __builtin_unreachable();
  }
}

int64_t tile_count(int64_t rows) { return (rows + max_tile_rows - 1) / max_tile_rows; }
int64_t tile_begin(int64_t rows, int64_t tile) { return rows * tile / tile_count(rows); }

}  // namespace
}  // namespace rondo::RONDO_ISA
