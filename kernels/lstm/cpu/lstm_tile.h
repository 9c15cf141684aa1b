// The product at the heart of the LSTM's time loops: a few rows times one packed panel, per
// instruction set. For lstm_loop_simd.cc.
//
// Every sum runs over k in order, in one accumulator, whatever the shape of the tile: a row has the
// same bits in every tile. So tiles may be cut, and dealt to threads, as suits the machine. For AMX
// lstm_tile_amx.h has the same.
#pragma once

#include "kernels/base/cpu/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

// Rows whose sums over four vectors, one panel row and a broadcast fill the register file (32
// registers with AVX-512, else 16), and rows of a tile. With 16 registers a tile takes several
// passes over its panel: up to 3 rows by four vectors, or 4 to 6 rows by two, which reads half as
// much of the panel for each product. fine_rows: of a tile where more tiles are wanted.
#if defined(__AVX512F__)
constexpr int wide_rows = 6, max_tile_rows = 6, fine_rows = 6;
constexpr int64_t prefetch_distance = 8192;
#else
constexpr int wide_rows = 3, max_tile_rows = 24, fine_rows = 6;
constexpr int64_t prefetch_distance = 6144;
#endif
// A panel that comes from L3 is used as fast as it arrives only when it is asked for early, by the
// distance above: 15-25 % for one to four rows, and it cost nothing when the panel was in L2.

// What choosing a team needs to know (lstm_team.h).
constexpr int rows_at_once = 1;
template <class A>
constexpr double products_per_ns = 110.0 / 16 * W*(sizeof(A) == 2 ? 2 : 1);

// One step of a sum takes 4 bytes of an operand: a float, or a pair of bf16.
template <class A>
constexpr int64_t sum_steps(int64_t k) {
  return sizeof(A) == 2 ? (k + 1) / 2 : k;
}

// Sums lie in ordinary registers.
struct TileRegisters {};

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
  return add_bf16_products(sum, x, load(reinterpret_cast<const float*>(b)));
}
#endif

// Where a pass stands in what it fetches into L2 for the next panel, a line per step.
struct Ahead {
  const char* line;
  int64_t bytes_per_step;
};

// out[r][v] = sum over `steps` of a[r][k] * panel[k][v], on top of what is there unless `first`. A
// step of the panel is four vectors, of which the first `vectors` are taken. near: the panel may
// not be in L1 yet; far: fetches for `ahead`.
template <int rows, int vectors, bool near, bool far, class A>
[[gnu::always_inline]] inline void tile_sums(const A* a, int64_t lda, const A* panel, int64_t steps,
                                             bool first, float* out, Ahead& ahead) {
  constexpr int64_t vector = W * 4 / sizeof(A);  // elements of A
  vf sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = first ? vf{} : load(out + (r * 4 + v) * W);
  }
  for (int64_t k = 0; k < steps; ++k, panel += 4 * vector) {
    if constexpr (near) {
      const char* later = reinterpret_cast<const char*>(panel) + prefetch_distance;
#pragma GCC unroll 4
      for (int64_t line = 0; line < vectors * W * 4; line += 64) __builtin_prefetch(later + line);
    }
    if constexpr (far) {
      __builtin_prefetch(ahead.line, 0, 2);
      ahead.line += ahead.bytes_per_step;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const vf x = operand_at(a + r * lda, k);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        sums[r][v] = add_product(sums[r][v], x, panel + v * vector);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store(out + (r * 4 + v) * W, sums[r][v]);
  }
}

// Up to wide_rows rows by four vectors, over all of k.
template <class A>
void wide_pass(int64_t rows, const A* a, int64_t lda, const A* panel, int64_t steps, float* out) {
  Ahead nothing{};
  switch (rows) {
#define RONDO_ROWS(n) \
  case n:             \
    return tile_sums<n, 4, true, false>(a, lda, panel, steps, true, out, nothing);
    RONDO_ROWS(1)
    RONDO_ROWS(2)
    RONDO_ROWS(3)
#if defined(__AVX512F__)
    RONDO_ROWS(4)
    RONDO_ROWS(5)
    RONDO_ROWS(6)
#endif
#undef RONDO_ROWS
    default:
      return;
  }
}

#if defined(__AVX512F__)

// The product of up to max_tile_rows rows and a panel.
template <class A>
void tile_product(TileRegisters&, int64_t rows, const A* a, int64_t lda, const A* panel,
                  int64_t depth, const A*, float* out) {
  wide_pass(rows, a, lda, panel, sum_steps<A>(depth), out);
}

#else

// 4 to 6 rows by two vectors.
template <bool near, bool far>
void narrow_pass(int64_t rows, const float* a, int64_t lda, const float* panel, int64_t steps,
                 bool first, float* out, Ahead& ahead) {
  switch (rows) {
    case 4:
      return tile_sums<4, 2, near, far>(a, lda, panel, steps, first, out, ahead);
    case 5:
      return tile_sums<5, 2, near, far>(a, lda, panel, steps, first, out, ahead);
    case 6:
      return tile_sums<6, 2, near, far>(a, lda, panel, steps, first, out, ahead);
    default:
      __builtin_unreachable();
  }
}

// Whether 3 of so many rows are taken by themselves, so that the others come as fives and sixes:
// with fewer rows there are too few independent sums to keep the multipliers busy.
bool takes_three(int64_t rows) {
  return (rows >= 7 && rows <= 9) || (rows >= 13 && rows <= 15) || rows == 19;
}

// Four rows and more, over `steps` of k, in passes over the same part of a panel.
template <bool far>
void tile_passes(int64_t rows, const float* a, int64_t lda, const float* panel, int64_t steps,
                 bool first, float* out, Ahead ahead) {
  const bool three = takes_three(rows);
  if (three) {
    tile_sums<3, 4, true, far>(a, lda, panel, steps, first, out, ahead);
    rows -= 3, a += 3 * lda, out += 3 * 4 * W;
  }
  const int64_t pieces = (rows + 5) / 6;
  for (int64_t v = 0; v < 4; v += 2) {
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t row = rows * i / pieces, count = rows * (i + 1) / pieces - row;
      const auto pass = i == 0 && !three ? narrow_pass<true, far> : narrow_pass<false, far>;
      pass(count, a + row * lda, lda, panel + v * W, steps, first, out + (row * 4 + v) * W, ahead);
    }
  }
}

// The product of up to max_tile_rows rows and a panel. The panel that follows is fetched meanwhile
// from `next`: evenly by all passes, because the first alone would wait for memory while the others
// leave it idle.
void tile_product(TileRegisters&, int64_t rows, const float* a, int64_t lda, const float* panel,
                  int64_t depth, const float* next, float* out) {
  constexpr int64_t most_steps = 1024;  // a quarter of L2, with what is fetched meanwhile a half
  if (rows <= wide_rows) return wide_pass(rows, a, lda, panel, depth, out);
  const int64_t three = takes_three(rows) ? 1 : 0;
  const int64_t passes = three + (rows - 3 * three + 5) / 6 * 2;
  const int64_t step_bytes = 4 * W * static_cast<int64_t>(sizeof(float));
  for (int64_t k = 0; k < depth; k += most_steps) {
    const int64_t steps = depth - k < most_steps ? depth - k : most_steps;
    const float* const part = panel + k * 4 * W;
    const float* const later = k + steps < depth ? part + steps * 4 * W : next;
    const Ahead ahead{reinterpret_cast<const char*>(later), (step_bytes + passes - 1) / passes};
    // Two short passes have no loads to spare, and need it for large matrices alone.
    const bool far = passes > 2 || depth >= most_steps;
    (far ? tile_passes<true> : tile_passes<false>)(rows, a + k, lda, part, steps, k == 0, out,
                                                   ahead);
  }
}

#endif

}  // namespace
}  // namespace rondo::RONDO_ISA
