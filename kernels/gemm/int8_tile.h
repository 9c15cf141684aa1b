// Rows of 8-bit integers times a packed panel (kernels/gemm/int8.h), per instruction set. For
// *_int8_simd.cc files, which are compiled without contraction; internal linkage.
#pragma once

#include "kernels/base/cpu/simd.h"
#include "kernels/gemm/gemm_pack.h"
#include "kernels/gemm/int8.h"

namespace rondo::RONDO_ISA {
namespace {

// Rows whose sums over four vectors stay in registers, and rows of a tile, which takes several
// passes over a panel that lies in the first-level cache.
#if defined(__AVX512F__)
constexpr int pass_rows = 6;
#elif defined(__AVX2__)
constexpr int pass_rows = 3;
#else
constexpr int pass_rows = 2;
#endif
constexpr int max_tile_rows = 24, fine_rows = 6;

constexpr int64_t values_per_step = 4;  // of k, in 4 bytes
constexpr int64_t step_bytes = 4 * W * values_per_step;
constexpr int64_t header_bytes = 2 * 4 * W * 4;

int64_t int8_steps(int64_t k) { return (k + values_per_step - 1) / values_per_step; }
int64_t int8_panel_bytes(int64_t k) { return header_bytes + int8_steps(k) * step_bytes; }

// Where rows are held as q + 128, as vpdpbusd takes them, each sum has 128 times the sum of its
// column too much. The generic code does the same, so that it is tested everywhere.
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
constexpr int held_above = 0;
#else
constexpr int held_above = 128;
#endif

// Four values of a row, the same for all columns, as products take them; and sums + their products
// with those of W columns.
#if defined(__AVX512VNNI__)
using Four = vi;
[[gnu::always_inline]] inline Four four_of(int32_t bytes) { return broadcast_int(bytes); }
[[gnu::always_inline]] inline vi add_products(vi sums, Four row, vi columns) {
  return __builtin_bit_cast(
      vi, _mm512_dpbusd_epi32(__builtin_bit_cast(__m512i, sums), __builtin_bit_cast(__m512i, row),
                              __builtin_bit_cast(__m512i, columns)));
}
#elif defined(__AVX2__)
// The first factor of vpmaddubsw has no sign, so the second takes it over. Two products sum up to
// 32,258 at most, which 16 bits hold.
struct Four {
  __m256i values, magnitudes;
};
[[gnu::always_inline]] inline Four four_of(int32_t bytes) {
  const __m256i values = _mm256_set1_epi32(bytes);
  return {values, _mm256_abs_epi8(values)};
}
[[gnu::always_inline]] inline vi add_products(vi sums, const Four& row, vi columns) {
  const __m256i with_sign = _mm256_sign_epi8(__builtin_bit_cast(__m256i, columns), row.values);
  const __m256i pairs = _mm256_maddubs_epi16(row.magnitudes, with_sign);
  return sums + __builtin_bit_cast(vi, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#elif defined(__SSE2__)
using Four = __m128i;  // of 16 bits
[[gnu::always_inline]] inline Four four_of(int32_t bytes) {
  return _mm_unpacklo_epi8(_mm_set1_epi32(bytes), _mm_setzero_si128());
}
[[gnu::always_inline]] inline vi add_products(vi sums, Four row, vi columns) {
  const auto c = __builtin_bit_cast(__m128i, columns);
  const __m128i signs = _mm_cmpgt_epi8(_mm_setzero_si128(), c);
  // Of two columns each, the first and the second pair of values.
  const auto low = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpacklo_epi8(c, signs), row));
  const auto high = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpackhi_epi8(c, signs), row));
  return sums + __builtin_bit_cast(vi, _mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0))) +
         __builtin_bit_cast(vi, _mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
}
#else
using Four = vi;
[[gnu::always_inline]] inline Four four_of(int32_t bytes) { return broadcast_int(bytes); }
[[gnu::always_inline]] inline vi add_products(vi sums, Four row, vi columns) {
  for (int byte = 0; byte < 4; ++byte) {
    sums += ((row >> 8 * byte) & 0xff) * ((columns << (24 - 8 * byte)) >> 24);
  }
  return sums;
}
#endif

// ---- rows ----

float magnitude_of(const float* x, int64_t k) {
  vi most{};  // as bits: NaN is above all numbers
  for (int64_t i = 0; i < k; i += W) {
    const vi bits = bits_of(load_some(x + i, k - i)) & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  int32_t all = 0;
  for (int i = 0; i < W; ++i) all = most[i] > all ? most[i] : all;
  return __builtin_bit_cast(float, all);
}

typedef int8_t vb __attribute__((vector_size(W)));
typedef int8_t vb_unaligned __attribute__((vector_size(W), aligned(1), may_alias));

// Zeros stand behind the last value, up to the row's end.
void quantize_row(const float* x, int64_t k, int8_t* q, float* scale) {
  const Int8Scale s = int8_scale(magnitude_of(x, k));
  const float magic = 12582912.0f;
  const int64_t end = int8_row_bytes(k);
  for (int64_t i = 0; i < end; i += W) {
    const vf values = i < k ? load_some(x + i, k - i) : vf{};
    const vf shifted = values * s.inverse + magic;
    const vi integers = bits_of(shifted) + held_above;
    *reinterpret_cast<vb_unaligned*>(q + i) = __builtin_convertvector(integers, vb);
  }
  *scale = s.scale;
}

void quantize(const float* x, int64_t ld, int64_t rows, int64_t k, int8_t* q, float* scales) {
  for (int64_t r = 0; r < rows; ++r) {
    quantize_row(x + r * ld, k, q + r * int8_row_bytes(k), scales + r);
  }
}

// ---- columns ----

int64_t int8_panels(const Int8Matrix& m) {
  const int64_t per_panel = m.cells ? W : 4 * W;
  return (m.columns + per_panel - 1) / per_panel;
}

void pack_column(const Int8Matrix& m, int64_t column, float* scale, int32_t* excess,
                 int8_t* values) {
  const float* w = m.w + column * m.column_stride;
  float most = 0;
  for (int64_t k = 0; k < m.k; ++k) {
    const float x = __builtin_fabsf(w[k * m.k_stride]);
    most = x > most || x != x ? x : most;
    if (most != most) break;
  }
  const Int8Scale s = int8_scale(most);
  int32_t sum = 0;
  for (int64_t k = 0; k < m.k; ++k) {
    const int8_t q = int8_of(w[k * m.k_stride], s.inverse);
    values[k / values_per_step * step_bytes + k % values_per_step] = q;
    sum += q;
  }
  *scale = s.scale;
  *excess = held_above * sum;
}

void pack_int8(const Int8Matrix& m, int64_t first_panel, int64_t last_panel) {
  for (int64_t j = first_panel; j < last_panel; ++j) {
    char* const panel = static_cast<char*>(m.packed) + j * int8_panel_bytes(m.k);
    __builtin_memset(panel, 0, static_cast<size_t>(int8_panel_bytes(m.k)));
    auto* scales = reinterpret_cast<float*>(panel);
    auto* excess = reinterpret_cast<int32_t*>(scales + 4 * W);
    auto* values = reinterpret_cast<int8_t*>(panel + header_bytes);
    for (int64_t i = 0; i < 4 * W; ++i) {
      const int64_t v = i / W, of_gate = m.cells ? j * W + i % W : j * 4 * W + i;
      if (of_gate >= m.columns) continue;
      pack_column(m, m.cells ? v * m.columns + of_gate : of_gate, scales + i, excess + i,
                  values + i * values_per_step);
    }
  }
}

// ---- products ----

[[gnu::always_inline]] inline vi load_int(const void* p) {
  return *static_cast<const vi_unaligned*>(p);
}

// The product of `rows` rows and a panel; `near`: which may not be in the first-level cache yet.
template <int rows, bool near>
[[gnu::always_inline]] inline void pass(const int8_t* a, int64_t lda, const float* scales,
                                        const char* panel, int64_t steps, float* out) {
  constexpr int64_t prefetch_distance = 6144;
  const char* at = panel + header_bytes;
  vi sums[rows][4] = {};
  for (int64_t k = 0; k < steps; ++k, at += step_bytes) {
    if constexpr (near) {
#pragma GCC unroll 4
      for (int64_t line = 0; line < step_bytes; line += 64) {
        __builtin_prefetch(at + prefetch_distance + line);
      }
    }
    Four row[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * lda + k * values_per_step, sizeof four);
      row[r] = four_of(four);
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const vi columns = load_int(at + v * W * values_per_step);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) sums[r][v] = add_products(sums[r][v], row[r], columns);
    }
  }
  const auto* of_columns = reinterpret_cast<const float*>(panel);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const vf scale = load(of_columns + v * W);
    const vi excess = load_int(of_columns + (4 + v) * W);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const vf sum = __builtin_convertvector(sums[r][v] - excess, vf);
      store(out + (r * 4 + v) * W, sum * (scale * scales[r]));
    }
  }
}

template <bool near>
void some_rows(int64_t rows, const int8_t* a, int64_t lda, const float* scales, const char* panel,
               int64_t steps, float* out) {
  switch (rows) {
#define RONDO_ROWS(n) \
  case n:             \
    return pass<n, near>(a, lda, scales, panel, steps, out);
    RONDO_ROWS(1)
    RONDO_ROWS(2)
#if defined(__AVX2__)
    RONDO_ROWS(3)
#endif
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

// The product of up to max_tile_rows rows and a panel: out [rows][4 W].
void int8_tile(int64_t rows, const int8_t* a, int64_t lda, const float* scales, const char* panel,
               int64_t k, float* out) {
  const int64_t steps = int8_steps(k), passes = (rows + pass_rows - 1) / pass_rows;
  for (int64_t p = 0; p < passes; ++p) {
    const int64_t row = rows * p / passes, count = rows * (p + 1) / passes - row;
    (p == 0 ? some_rows<true> : some_rows<false>)(count, a + row * lda, lda, scales + row, panel,
                                                  steps, out + row * 4 * W);
  }
}

}  // namespace
}  // namespace rondo::RONDO_ISA
