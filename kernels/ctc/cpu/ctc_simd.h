// Vectors of doubles, reductions and transposes for the cpu variants of ctc; to be included by
// their *_simd.cc files alone (kernels/base/cpu/simd.h).
#pragma once

#include <utility>

#include "kernels/base/cpu/simd.h"

namespace rondo::RONDO_ISA {

inline constexpr int WD = W / 2;
typedef double vd __attribute__((vector_size(W * 4)));
typedef int64_t vl __attribute__((vector_size(W * 4)));
typedef double vd_unaligned __attribute__((vector_size(W * 4), aligned(8), may_alias));
typedef float vf_half __attribute__((vector_size(W * 2)));
typedef float vf_half_unaligned __attribute__((vector_size(W * 2), aligned(4), may_alias));

static inline vd load(const double* p) { return *reinterpret_cast<const vd_unaligned*>(p); }
static inline void store(double* p, vd v) { *reinterpret_cast<vd_unaligned*>(p) = v; }
static inline vd broadcast(double x) { return x - vd{}; }
static inline vl bits_of(vd v) { return __builtin_bit_cast(vl, v); }
static inline vd double_of(vl v) { return __builtin_bit_cast(vd, v); }
static inline vd select(vl mask, vd a, vd b) { return mask ? a : b; }
static inline vd max(vd a, vd b) { return a > b ? a : b; }
static inline vd min(vd a, vd b) { return a < b ? a : b; }

// WD numbers as doubles, whatever they are stored as.
static inline vd load_wide(const double* p) { return load(p); }
static inline vd load_wide(const float* p) {
  return __builtin_convertvector(*reinterpret_cast<const vf_half_unaligned*>(p), vd);
}
static inline void store_narrow(double* p, vd v) { store(p, v); }
static inline void store_narrow(float* p, vd v) {
  *reinterpret_cast<vf_half_unaligned*>(p) = __builtin_convertvector(v, vf_half);
}

// The vector whose elements are Real, and how many it has.
template <class Real>
struct VectorOf;
template <>
struct VectorOf<float> {
  using type = vf;
  static constexpr int lanes = W;
};
template <>
struct VectorOf<double> {
  using type = vd;
  static constexpr int lanes = WD;
};
template <class Real>
using Vec = typename VectorOf<Real>::type;
template <class Real>
constexpr int lanes_of = VectorOf<Real>::lanes;

template <int n>
using Lanes = std::make_integer_sequence<int, n>;

template <class V, int... i>
static inline V swap_halves(V v, int distance_log2, std::integer_sequence<int, i...>) {
  switch (distance_log2) {
    case 0:
      return __builtin_shufflevector(v, v, (i ^ 1)...);
    case 1:
      return __builtin_shufflevector(v, v, (i ^ 2) % static_cast<int>(sizeof...(i))...);
    case 2:
      return __builtin_shufflevector(v, v, (i ^ 4) % static_cast<int>(sizeof...(i))...);
    default:
      return __builtin_shufflevector(v, v, (i ^ 8) % static_cast<int>(sizeof...(i))...);
  }
}

// All lanes folded by `f`, in a fixed order.
template <class Real, class F>
static inline Real fold(Vec<Real> v, F f) {
  constexpr int n = lanes_of<Real>;
  if constexpr (n >= 16) v = f(v, swap_halves(v, 3, Lanes<n>{}));
  if constexpr (n >= 8) v = f(v, swap_halves(v, 2, Lanes<n>{}));
  if constexpr (n >= 4) v = f(v, swap_halves(v, 1, Lanes<n>{}));
  return f(v, swap_halves(v, 0, Lanes<n>{}))[0];
}
template <class Real>
static inline Real sum_lanes(Vec<Real> v) {
  return fold<Real>(v, [](Vec<Real> a, Vec<Real> b) { return a + b; });
}
template <class Real>
static inline Real max_lanes(Vec<Real> v) {
  return fold<Real>(v, [](Vec<Real> a, Vec<Real> b) { return max(a, b); });
}
template <class Real>
static inline Real min_lanes(Vec<Real> v) {
  return fold<Real>(v, [](Vec<Real> a, Vec<Real> b) { return min(a, b); });
}

template <int... i>
static inline vd shift_in_impl(vd before, vd v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(before, v, (WD - 1 + i)...);
}
template <int... i>
static inline vd shift_out_impl(vd v, vd after, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, after, (1 + i)...);
}
// {before[last], v[0], ..., v[last - 1]}
static inline vd shift_in(vd before, vd v) { return shift_in_impl(before, v, Lanes<WD>{}); }
// {v[1], ..., v[last], after[0]}
static inline vd shift_out(vd v, vd after) { return shift_out_impl(v, after, Lanes<WD>{}); }

template <class V, int... i>
static inline V zip_low(V a, V b, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 2 + (i % 2) * n)...);
}
template <class V, int... i>
static inline V zip_high(V a, V b, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return __builtin_shufflevector(a, b, (n / 2 + i / 2 + (i % 2) * n)...);
}

// rows[i][j] becomes rows[j][i]: log2(n) perfect shuffles.
template <class Real>
static inline void transpose(Vec<Real>* rows) {
  constexpr int n = lanes_of<Real>;
  for (int step = 1; step < n; step *= 2) {
    Vec<Real> out[n];
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i) {
      out[2 * i] = zip_low(rows[i], rows[i + n / 2], Lanes<n>{});
      out[2 * i + 1] = zip_high(rows[i], rows[i + n / 2], Lanes<n>{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) rows[i] = out[i];
  }
}

// exp(x) = mantissa * 2^exponent, both as doubles; mantissa in [0.7, 1.42), 0 for -inf. Taylor
// series to the 13th power on |r| <= ln(2)/2: below 1 ulp.
struct Split {
  vd mantissa, exponent;
};
static inline Split exp_split(vd x) {
  const vd zero = double_of(x == broadcast(-__builtin_inf()));
  const vd safe = select(bits_of(zero), vd{}, x);
  const vd magic = broadcast(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to an integer
  const vd scaled = safe * 1.44269504088896340736;
  const vl small = max(scaled, -scaled) < 0x1p51;
  const vd n = select(small, (scaled + magic) - magic, scaled);
  vd r = safe - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  r = min(max(r, broadcast(-0.35)), broadcast(0.35));  // what is left of huge arguments
  vd p = broadcast(1.0 / 6227020800);
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return {select(bits_of(zero), vd{}, p), n};
}

// 2^n for integral n as doubles; below 2^-1022 this is 2^-1022, above 2^1023 it is that.
static inline vd power_of_two(vd n) {
  const vd magic = broadcast(6755399441055744.0);
  const vd clamped = min(max(n, broadcast(-1022.0)), broadcast(1023.0));
  return double_of((bits_of(clamped + magic) - bits_of(magic) + 1023) << 52);
}

// NaN stays NaN; for x <= 700.
static inline vd exp(vd x) {
  const Split s = exp_split(max(x, broadcast(-1500.0)));
  // In two factors, to reach 0 through the subnormals.
  const vd low = max(s.exponent, broadcast(-1000.0));
  return select(x != x, x, s.mantissa * power_of_two(low) * power_of_two(s.exponent - low));
}

}  // namespace rondo::RONDO_ISA
