// Rearranging matrices for products: whole vectors of 32-bit units, transposed in registers. For
// *_simd.cc files, per instruction set; internal linkage.
#pragma once

#include <utility>

#include "kernels/base/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

[[maybe_unused]] vf load_some(const float* p, int64_t n) {
  if (n >= W) return load(p);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#else
  vf v{};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}

[[maybe_unused]] void store_some(float* p, vf v, int64_t n) {
  if (n >= W) return store(p, v);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

[[maybe_unused]] vf load_some(const uint16_t* p, int64_t n) {
  if (n >= W) return load_bf16(p);
  uint16_t pad[W] = {};
  for (int64_t i = 0; i < n; ++i) pad[i] = p[i];
  return load_bf16(pad);
}

[[maybe_unused]] void store_some(uint16_t* p, vf v, int64_t n) {
  if (n >= W) return store_bf16(p, v);
  uint16_t pad[W];
  store_bf16(pad, v);
  for (int64_t i = 0; i < n; ++i) p[i] = pad[i];
}

// A unit is 32 bits along k: one float (depth 1; bf16 is widened), or a pair of bf16 (depth 2).
// W units of one row, k contiguous; `values` remain in the row.
template <int depth>
vf units_along(const float* p, int64_t values) {
  return load_some(p, values);
}
template <int depth>
vf units_along(const uint16_t* p, int64_t values) {
  if constexpr (depth == 1) return load_some(p, values);
  vf pairs{};
  if (values >= 2 * W) {
    __builtin_memcpy(&pairs, p, sizeof pairs);
  } else {
    __builtin_memcpy(&pairs, p, static_cast<size_t>(values) * sizeof *p);
  }
  return pairs;
}

// One unit of W columns, k across rows of `ld`; `columns` remain, `values` of k remain.
template <int depth>
vf units_across(const float* p, int64_t, int64_t columns, int64_t) {
  return load_some(p, columns);
}
template <int depth>
vf units_across(const uint16_t* p, int64_t ld, int64_t columns, int64_t values) {
  const vi low = bits_of(load_some(p, columns));
  if constexpr (depth == 1) return float_of(low);
  const vi high = values > 1 ? bits_of(load_some(p + ld, columns)) : vi{};
  return float_of(__builtin_bit_cast(vi, __builtin_bit_cast(vu, low) >> 16) | high);
}

// Exchanges lanes and rows at distance S.
template <int S, int... L>
void exchange(vf* r, std::integer_sequence<int, L...>) {
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i) {
    if (i & S) continue;
    const vf a = r[i], b = r[i + S];
    r[i] = __builtin_shufflevector(a, b, ((L & S) ? W + L - S : L)...);
    r[i + S] = __builtin_shufflevector(a, b, ((L & S) ? W + L : L + S)...);
  }
}

[[maybe_unused]] void transpose(vf* r) {
  constexpr auto lanes = std::make_integer_sequence<int, W>{};
  if constexpr (W >= 16) exchange<8>(r, lanes);
  if constexpr (W >= 8) exchange<4>(r, lanes);
  exchange<2>(r, lanes);
  exchange<1>(r, lanes);
}

// `width` <= W rows of x become the columns of a panel with `stride` units per step. Writes whole
// vectors in increasing order, so that what a vector writes too much is overwritten by the next.
template <int depth, class T>
void pack_along(const T* x, int64_t ld, int width, int64_t k, float* out, int64_t stride) {
  const int64_t units = (k + depth - 1) / depth;
  for (int64_t u = 0; u < units; u += W) {
    vf r[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) {
      r[i] = i < width ? units_along<depth>(x + i * ld + u * depth, k - u * depth) : vf{};
    }
    transpose(r);
    const int64_t steps = units - u < W ? units - u : W;
    if (steps == W) {
#pragma GCC unroll 16
      for (int s = 0; s < W; ++s) store(out + (u + s) * stride, r[s]);
    } else {
      for (int64_t s = 0; s < steps; ++s) store(out + (u + s) * stride, r[s]);
    }
  }
}

// As pack_along for columns of x and steps [begin, end) of k; `columns` of them may be read. The
// last vectors of a panel may not run over into the next, which is already there.
template <int depth, class T>
void pack_across(const T* x, int64_t ld, int64_t columns, int64_t k, int64_t begin, int64_t end,
                 float* out, int64_t stride) {
  const int64_t units = (k + depth - 1) / depth;
  for (int64_t u = begin; u < end; ++u) {
    store_some(out + u * stride,
               units_across<depth>(x + u * depth * ld, ld, columns, k - u * depth),
               (units - u) * stride);
  }
}

}  // namespace
}  // namespace rondo::RONDO_ISA
