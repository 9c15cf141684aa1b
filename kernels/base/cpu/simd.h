// Vectors of floats for CPU kernels, as wide as the instruction set this file is compiled for.
//
// A source named *_simd.cc is compiled once per instruction set (kernels/meson.build), each time
// into its own namespace:
//
//   #include "kernels/base/cpu/simd.h"
//   namespace rondo::RONDO_ISA { void my_kernel(...) { vf x = load(p); ... } }
//
// Such a source must emit no inline function or template with external linkage outside its own
// namespace (std::, TensorView's are always_inline): the linker keeps one copy of each, and the one
// compiled with AVX-512 would then run on machines without it. tests/check_simd_symbols looks.
// Helpers go into an unnamed namespace; RONDO_CHECK prints its condition only in these files.
//
// Accuracy of the functions, measured by tests/simd/simd_test.cc over all exponents: exp 1.1 ulp,
// log 0.9, tanh 1.4, sigmoid 2.8. exp(-inf) = 0, exp(+inf) = inf, log(0) = -inf; NaN stays NaN.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef RONDO_ISA
#error "compile *_simd.cc files through the per-ISA libraries of kernels/meson.build"
#endif

namespace rondo::RONDO_ISA {

#if defined(__AVX512F__)
inline constexpr int W = 16;
#elif defined(__AVX2__)
inline constexpr int W = 8;
#else
inline constexpr int W = 4;
#endif

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef float vf_unaligned __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t vi_unaligned __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint16_t vh __attribute__((vector_size(W * 2)));
typedef uint16_t vh_unaligned __attribute__((vector_size(W * 2), aligned(2), may_alias));
typedef uint32_t vu __attribute__((vector_size(W * 4)));

static inline vf load(const float* p) { return *reinterpret_cast<const vf_unaligned*>(p); }
static inline void store(float* p, vf v) { *reinterpret_cast<vf_unaligned*>(p) = v; }
static inline vf broadcast(float x) { return x - vf{}; }
static inline vi broadcast_int(int32_t x) { return x - vi{}; }
static inline vi bits_of(vf v) { return __builtin_bit_cast(vi, v); }
static inline vf float_of(vi v) { return __builtin_bit_cast(vf, v); }
static inline vf select(vi mask, vf a, vf b) { return mask ? a : b; }
static inline vf max(vf a, vf b) { return a > b ? a : b; }  // b when a is NaN
static inline vf min(vf a, vf b) { return a < b ? a : b; }

#if defined(__AVX512BF16__)
// To each float of `sum` the products of two bf16 of x and y. (Clang 16 runs out of stack over the
// intrinsic, whose vectors of bf16 have a type of their own.)
static inline vf add_bf16_products(vf sum, vf x, vf y) {
#if defined(__clang__) && __clang_major__ < 19
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  return sum;
#else
  return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, x), __builtin_bit_cast(__m512bh, y));
#endif
}
#endif

// bf16 storage: the upper 16 bits, rounded to nearest even on store.
static inline vf load_bf16(const uint16_t* p) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // One instruction, where the compiler makes five of a conversion.
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
  return __builtin_bit_cast(vf, _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
#else
  const vh h = *reinterpret_cast<const vh_unaligned*>(p);
  return float_of(__builtin_convertvector(h, vi) << 16);
#endif
}
static inline void store_bf16(uint16_t* p, vf v) {
  const vu u = __builtin_bit_cast(vu, v);
  const vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const vu quiet_nan = (u >> 16) | 0x40u;
  const vu out = v != v ? quiet_nan : rounded;
  *reinterpret_cast<vh_unaligned*>(p) = __builtin_convertvector(out, vh);
}

static inline float sum(vf v) {
  float total = 0;
  for (int i = 0; i < W; ++i) total += v[i];
  return total;
}

// e^(x - n ln2) for the integers n next to x / ln2, by a polynomial of degree 6 (Cephes' expf
// coefficients; ln2 in two parts).
static inline vf exp_remainder(vf x, vf n) {
  vf r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  vf p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}

// e^x by 2^n * e^r with |r| <= ln2/2.
static inline vf exp(vf x) {
  const vf clamped = min(max(x, broadcast(-104.0f)), broadcast(89.0f));
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const vf n = (clamped * 1.44269504088896341f + magic) - magic;
  const vf p = exp_remainder(clamped, n);
  // Two factors, so that 2^n reaches the subnormals below and infinity above.
  const vi ni = __builtin_convertvector(n, vi);
  const vi half = ni >> 1;
  const vf s1 = float_of((half + 127) << 23);
  const vf s2 = float_of((ni - half + 127) << 23);
  return select(x != x, x, p * s1 * s2);
}

// Natural logarithm (Cephes' logf coefficients); negative arguments give NaN.
static inline vf log(vf x) {
  const vi tiny = x < 1.17549435e-38f;
  const vf scaled = select(tiny, x * 8388608.0f, x);  // subnormals: times 2^23
  vi bits = bits_of(scaled);
  vi e = ((bits >> 23) & 0xff) - 126;
  vf m = float_of((bits & 0x007fffff) | 0x3f000000);  // [0.5, 1)
  const vi low = m < 0.707106781186547524f;
  e = e + (low ? broadcast_int(-1) : broadcast_int(0));
  m = select(low, m + m, m) - 1.0f;
  const vf ef = __builtin_convertvector(e, vf) - select(tiny, broadcast(23.0f), broadcast(0.0f));
  const vf z = m * m;
  vf p = broadcast(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  vf y = p * m * z + ef * -2.12194440e-4f - 0.5f * z;
  y = m + y + ef * 0.693359375f;
  const vf inf = broadcast(__builtin_inff());
  y = select(x == inf, inf, y);
  y = select(x == 0.0f, -inf, y);
  return select(!(x >= 0.0f), broadcast(__builtin_nanf("")), y);
}

static inline vf sigmoid(vf x) {
  const vf e = exp(-max(x, -x));  // never overflows
  const vf s = 1.0f / (1.0f + e);
  return select(x != x, x, select(x < 0.0f, e * s, s));
}

// Odd polynomial near 0 (Cephes' tanhf), 1 - 2 / (e^2|x| + 1) elsewhere.
static inline vf tanh(vf x) {
  const vf a = max(x, -x);
  const vf z = x * x;
  vf p = broadcast(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const vf small = p * z * x + x;
  const vf large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const vf y = select(a < 0.625f, small, select(x < 0.0f, -large, large));
  return select(x != x, x, y);
}

}  // namespace rondo::RONDO_ISA
