// Loops over runs of f32 or bf16 storage, vector by vector, for *_simd.cc files (the rules of
// kernels/base/cpu/simd.h apply). bf16 elements are spelled uint16_t.
//
//   for_vectors(n, [&](int64_t i, auto part) { part.put(y + i, part.get(x + i) * 2.0f); });
//
// `part` is a whole vector everywhere but at the end, where it reads and writes n % W elements.
#pragma once

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {

struct WholeVector {
  static vf get(const float* p, float = 0) { return load(p); }
  static vf get(const uint16_t* p, float = 0) { return load_bf16(p); }
  static void put(float* p, vf v) { store(p, v); }
  static void put(uint16_t* p, vf v) { store_bf16(p, v); }
  static vf keep(vf v, float = 0) { return v; }
  static constexpr int64_t size() { return W; }
};

struct PartVector {
  int64_t n;  // in (0, W)
  int64_t size() const { return n; }

  vi inside() const {
    vi index;
    for (int i = 0; i < W; ++i) index[i] = i;
    return index < broadcast_int(static_cast<int32_t>(n));
  }
  // The lanes in use; `rest` elsewhere.
  vf keep(vf v, float rest = 0) const { return select(inside(), v, broadcast(rest)); }

  vf get(const float* p, float rest = 0) const {
#if defined(__AVX512F__)
    const auto mask = static_cast<__mmask16>((1u << n) - 1u);
    return __builtin_bit_cast(vf, _mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask, p));
#elif defined(__AVX2__)
    return keep(
        __builtin_bit_cast(vf, _mm256_maskload_ps(p, __builtin_bit_cast(__m256i, inside()))), rest);
#else
    vf v = broadcast(rest);
    for (int64_t i = 0; i < n; ++i) v[i] = p[i];
    return v;
#endif
  }
  vf get(const uint16_t* p, float rest = 0) const {
    uint16_t padded[W] = {};
    for (int64_t i = 0; i < n; ++i) padded[i] = p[i];
    return keep(load_bf16(padded), rest);
  }
  void put(float* p, vf v) const {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), __builtin_bit_cast(__m512, v));
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, __builtin_bit_cast(__m256i, inside()), __builtin_bit_cast(__m256, v));
#else
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
  }
  void put(uint16_t* p, vf v) const {
    uint16_t padded[W];
    store_bf16(padded, v);
    for (int64_t i = 0; i < n; ++i) p[i] = padded[i];
  }
};

template <class F>
[[gnu::always_inline]] static inline void for_vectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + W <= n; i += W) f(i, WholeVector{});
  if (i < n) f(i, PartVector{n - i});
}

// for_vectors over [0, n) on all threads. Every thread starts at a whole vector, so that the split
// never changes which elements are the tail.
template <class F>
[[gnu::always_inline]] static inline void for_vectors_threaded(ThreadPool& pool, int64_t n, F f) {
  pool.for_range((n + W - 1) / W, 16384 / W, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * W, last = end * W < n ? end * W : n;
    for_vectors(last - first, [&](int64_t i, auto part) { f(first + i, part); });
  });
}

// How many rows of `cols` elements make a job worth waking a thread for.
static inline int64_t row_grain(int64_t cols) { return 8192 / (cols + 1) + 1; }

static inline float largest(vf v) {
  float m = v[0];
  for (int i = 1; i < W; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

static inline vf sqrt(vf v) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(vf, _mm512_maskz_sqrt_ps(0xffff, __builtin_bit_cast(__m512, v)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(vf, _mm256_sqrt_ps(__builtin_bit_cast(__m256, v)));
#elif defined(__x86_64__)
  return __builtin_bit_cast(vf, _mm_sqrt_ps(__builtin_bit_cast(__m128, v)));
#else
  for (int i = 0; i < W; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}

// Sums over many rows, column by column, in a fixed order: f32 within blocks of 64 rows, double
// across blocks, so that the error does not grow with the number of rows.
inline constexpr int sum_vectors = 16;                   // wide tiles read each row in long runs
inline constexpr int64_t sum_columns = sum_vectors * W;  // columns of one tile

// N adjacent vectors of columns, from column `first` of the tile on.
template <int N, class F, class Part>
[[gnu::always_inline]] static inline void sum_strip(int64_t count, int64_t first, double* totals,
                                                    F at, Part part) {
  for (int k = 0; k < N * W; ++k) totals[first + k] = 0;
  for (int64_t block = 0; block < count; block += 64) {
    const int64_t end = block + 64 < count ? block + 64 : count;
    vf sums[N] = {};
    for (int64_t i = block; i < end; ++i) {
      for (int v = 0; v < N; ++v) sums[v] += at(i, first + v * W, part);
    }
    for (int v = 0; v < N; ++v) {
      for (int lane = 0; lane < W; ++lane) totals[first + v * W + lane] += sums[v][lane];
    }
  }
}

// totals[k] = sum over i in [0, count) of column k of the tile; at(i, k, part) gives the values of
// row i from column k (a multiple of W) of the tile on. `columns` <= sum_columns = what totals has
// room for.
template <class F>
[[gnu::always_inline]] static inline void sum_tile(int64_t count, int64_t columns, double* totals,
                                                   F at) {
  int64_t k = 0;
  if (columns == sum_columns) return sum_strip<sum_vectors>(count, 0, totals, at, WholeVector{});
  for (; k + 4 * W <= columns; k += 4 * W) sum_strip<4>(count, k, totals, at, WholeVector{});
  for (; k + W <= columns; k += W) sum_strip<1>(count, k, totals, at, WholeVector{});
  if (k < columns) sum_strip<1>(count, k, totals, at, PartVector{columns - k});
}

}  // namespace rondo::RONDO_ISA
