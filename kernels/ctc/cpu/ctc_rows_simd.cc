// Per-frame work over the classes, before and after the lattice. Compiled once per instruction set.
#include "kernels/ctc/cpu/ctc_simd.h"
#include "kernels/ctc/ctc_impl.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

// Element types as stored, and the type they are computed in.
template <class E>
struct Compute {
  using type = E;
};
template <>
struct Compute<uint16_t> {
  using type = float;
};
template <class E>
using Real = typename Compute<E>::type;

float value(float x) { return x; }
double value(double x) { return x; }
float value(uint16_t x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

vf get(const float* p) { return load(p); }
vf get(const uint16_t* p) { return load_bf16(p); }
vd get(const double* p) { return load(p); }
void put(float* p, vf v) { store(p, v); }
void put(uint16_t* p, vf v) { store_bf16(p, v); }
void put(double* p, vd v) { store(p, v); }

// The last `count` elements of a row, `fill` in the lanes past it.
template <class E>
Vec<Real<E>> get_tail(const E* p, int64_t count, Real<E> fill) {
  Real<E> pad[lanes_of<Real<E>>];
  for (int i = 0; i < lanes_of<Real<E>>; ++i) pad[i] = i < count ? value(p[i]) : fill;
  return load(pad);
}
template <class E>
void put_tail(E* p, int64_t count, Vec<Real<E>> v) {
  E pad[lanes_of<Real<E>>];
  put(pad, v);
  for (int i = 0; i < count; ++i) p[i] = pad[i];
}
#if defined(__AVX512F__)
template <>
vf get_tail(const float* p, int64_t count, float fill) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  return __builtin_bit_cast(vf, _mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask, p));
}
template <>
vf get_tail(const uint16_t* p, int64_t count, float fill) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  // By vector extensions: GCC 12 warns about the inside of the conversion's intrinsic.
  const vh half = __builtin_bit_cast(vh, _mm256_maskz_loadu_epi16(mask, p));
  const vf wide = float_of(__builtin_convertvector(half, vi) << 16);
  return __builtin_bit_cast(
      vf, _mm512_mask_mov_ps(_mm512_set1_ps(fill), mask, __builtin_bit_cast(__m512, wide)));
}
template <>
void put_tail(float* p, int64_t count, vf v) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1),
                        __builtin_bit_cast(__m512, v));
}
#endif

// exp(x) for x <= 0: what simd.h's does, without what only positive arguments need.
vd exp_below(vd x) { return exp(x); }
#if defined(__AVX512F__)
vf exp_below(vf x) {
  const vf safe = max(broadcast(-104.0f), x);
  const vf n = __builtin_bit_cast(
      vf,
      _mm512_maskz_roundscale_ps(0xffff, __builtin_bit_cast(__m512, safe * 1.44269504088896341f),
                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const vf p = exp_remainder(safe, n);
  return __builtin_bit_cast(vf, _mm512_maskz_scalef_ps(0xffff, __builtin_bit_cast(__m512, p),
                                                       __builtin_bit_cast(__m512, n)));
}
#else
vf exp_below(vf x) { return exp(x); }
#endif

// Stores past the caches; `p` aligned to the vector.
void stream(double* p, vd v) { put(p, v); }
#if defined(__AVX512F__)
void stream(float* p, vf v) { _mm512_stream_ps(p, __builtin_bit_cast(__m512, v)); }
void stream(uint16_t* p, vf v) {
  vh half;
  put(reinterpret_cast<uint16_t*>(&half), v);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), __builtin_bit_cast(__m256i, half));
}
#elif defined(__AVX2__)
void stream(float* p, vf v) { _mm256_stream_ps(p, __builtin_bit_cast(__m256, v)); }
void stream(uint16_t* p, vf v) { put(p, v); }
#else
void stream(float* p, vf v) { put(p, v); }
void stream(uint16_t* p, vf v) { put(p, v); }
#endif

template <class R>
constexpr R minus_infinity = -static_cast<R>(__builtin_inf());

template <class E>
Real<E> row_maximum(const E* x, int64_t n) {
  using R = Real<E>;
  constexpr int lanes = lanes_of<R>;
  Vec<R> top = broadcast(minus_infinity<R>), top2 = top;
  int64_t v = 0;
  for (; v + 2 * lanes <= n; v += 2 * lanes) {
    top = max(get(x + v), top);
    top2 = max(get(x + v + lanes), top2);
  }
  for (; v + lanes <= n; v += lanes) top = max(get(x + v), top);
  if (v < n) top = max(get_tail(x + v, n - v, minus_infinity<R>), top);
  return max_lanes<R>(max(top, top2));
}

// Sum of exp(x - top); the terms go to `out` when given, in whole vectors.
template <class E>
Real<E> sum_of_exp(const E* x, int64_t n, Real<E> top, Real<E>* out) {
  using R = Real<E>;
  constexpr int lanes = lanes_of<R>;
  const Vec<R> shift = broadcast(top);
  Vec<R> sums[4] = {};
  int64_t v = 0;
  for (; v + 4 * lanes <= n; v += 4 * lanes) {
    for (int k = 0; k < 4; ++k) {
      const Vec<R> e = exp_below(get(x + v + k * lanes) - shift);
      sums[k] += e;
      if (out) store(out + v + k * lanes, e);
    }
  }
  for (; v < n; v += lanes) {
    const Vec<R> logit = v + lanes <= n ? get(x + v) : get_tail(x + v, n - v, minus_infinity<R>);
    const Vec<R> e = exp_below(logit - shift);
    sums[0] += e;
    if (out) store(out + v, e);
  }
  return sum_lanes<R>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

constexpr int64_t buffered_classes = 512;

// Up to here a row's exponentials are kept for a moment and the labels' are picked out of them.
template <class R>
struct RowBuffer {
  alignas(64) R e[buffered_classes + 2 * W];
};

template <class R>
int32_t drop_of(R smallest);
template <>
int32_t drop_of(float smallest) {
  const int32_t e = __builtin_bit_cast(int32_t, smallest) >> 23;
  return e <= 0 ? 1 << 20 : 127 - e;
}
template <>
int32_t drop_of(double smallest) {
  const auto e = static_cast<int32_t>(__builtin_bit_cast(int64_t, smallest) >> 52);
  return e <= 0 ? 1 << 20 : 1023 - e;
}

template <class R>
void pick(const R* e, const int32_t* label_class, int32_t padded, R* y) {
  for (int32_t i = 0; i < padded; ++i) y[i] = e[label_class[i]];
}
#if defined(__AVX512F__)
// Up to 32 classes: a table of two registers.
void pick_from_two(const float* e, const int32_t* label_class, int32_t padded, float* y) {
  const __m512 low = _mm512_loadu_ps(e), high = _mm512_loadu_ps(e + 16);
  for (int32_t i = 0; i < padded; i += 16) {
    _mm512_storeu_ps(y + i, _mm512_permutex2var_ps(low, _mm512_loadu_si512(label_class + i), high));
  }
}
#endif

// The smallest y of the frame as bits; clears the positions past the labels, which so far are the
// blank's, so that they do not count.
template <class R>
int32_t finish_row(const CtcSequence& s, R* y, R blank) {
  Vec<R> least = broadcast(blank), least2 = least;
  int32_t i = 0;
  for (; i + 2 * lanes_of<R> <= s.padded; i += 2 * lanes_of<R>) {
    least = min(load(y + i), least);
    least2 = min(load(y + i + lanes_of<R>), least2);
  }
  if (i < s.padded) least = min(load(y + i), least);
  least = min(least, least2);
  for (int32_t k = s.label_count; k < s.padded; ++k) y[k] = 0;
  return drop_of(min_lanes<R>(least));
}

template <class E>
void gather_labels(const CtcSequence& s, const E* x, Real<E>* y) {
  for (int32_t i = 0; i < s.padded; ++i) y[i] = value(x[s.label_class[i]]);
}

// y = exp(logit - shift) in place of the gathered logits; returns their sum.
template <class R>
R exponentiate(R* y, int32_t padded, R shift) {
  Vec<R> sum = {};
  for (int32_t i = 0; i < padded; i += lanes_of<R>) {
    const Vec<R> e = exp_below(load(y + i) - broadcast(shift));
    store(y + i, e);
    sum += e;
  }
  return sum_lanes<R>(sum);
}

template <class R>
R exp_of(R x) {
  return exp_below(broadcast(x))[0];
}

template <class E>
void row_from_logits(const CtcSequence& s, const E* x, int32_t t, int64_t at,
                     RowBuffer<Real<E>>& buffer) {
  using R = Real<E>;
  R* y = static_cast<R*>(s.y) + at * s.padded;
  const R top = row_maximum(x, s.classes);
  R sum, blank;
  if (s.classes <= buffered_classes) {
    sum = sum_of_exp(x, s.classes, top, buffer.e);
    blank = buffer.e[s.blank];
#if defined(__AVX512F__)
    if constexpr (sizeof(R) == 4) {
      if (s.classes <= 32) {
        pick_from_two(buffer.e, s.label_class, s.padded, y);
      } else {
        pick(buffer.e, s.label_class, s.padded, y);
      }
    } else
#endif
      pick(buffer.e, s.label_class, s.padded, y);
  } else {
    sum = sum_of_exp<E>(x, s.classes, top, nullptr);
    gather_labels(s, x, y);
    exponentiate(y, s.padded, top);
    blank = exp_of<R>(value(x[s.blank]) - top);
  }
  static_cast<R*>(s.y_blank)[at] = blank;
  static_cast<R*>(s.row_max)[t] = top;
  static_cast<R*>(s.row_sum)[t] = sum;
  s.drop[at] = finish_row(s, y, blank);
}

// Only the blank's and the labels' columns count; their maximum is taken out to keep the range.
template <class E>
void row_from_log_softmax(const CtcSequence& s, const E* x, int32_t t, int64_t at) {
  using R = Real<E>;
  R* y = static_cast<R*>(s.y) + at * s.padded;
  gather_labels(s, x, y);
  Vec<R> tops = broadcast(value(x[s.blank]));
  for (int32_t i = 0; i < s.padded; i += lanes_of<R>) tops = max(load(y + i), tops);
  R top = max_lanes<R>(tops);
  if (top == minus_infinity<R>) top = 0;
  const R blank = exp_of<R>(value(x[s.blank]) - top);
  static_cast<R*>(s.row_sum)[t] = blank + exponentiate(y, s.padded, top);
  static_cast<R*>(s.y_blank)[at] = blank;
  static_cast<R*>(s.row_max)[t] = top;
  s.drop[at] = finish_row(s, y, blank);
}

template <class E>
void rows(const CtcSequence& s, int32_t begin, int32_t end, int32_t slot) {
  RowBuffer<Real<E>> buffer;
  for (int32_t t = begin; t < end; ++t) {
    const int64_t at = s.ring ? slot + t % s.ring : t;
    const E* x = static_cast<const E*>(s.logits) +
                 (static_cast<int64_t>(s.row_offsets[t]) + s.sequence) * s.classes;
    if (s.input == CtcInput::logits) {
      row_from_logits(s, x, t, at, buffer);
    } else {
      row_from_log_softmax(s, x, t, at);
    }
  }
}

template <class E>
void grad_dense(const CtcSequence& s, const E* x, E* g, int32_t t) {
  using R = Real<E>;
  constexpr int lanes = lanes_of<R>;
  const R* post = static_cast<const R*>(s.post) + t * s.bin_stride;
  const auto scale = static_cast<R>(s.grad_scale);
  const Vec<R> shift = broadcast(static_cast<const R*>(s.row_max)[t]);
  const Vec<R> inverse = broadcast(1 / static_cast<const R*>(s.row_sum)[t]);
  const bool logits = s.input == CtcInput::logits;
  for (int64_t v = 0; v < s.classes; v += lanes) {
    const int64_t left = s.classes - v;
    Vec<R> y = {};
    if (logits)
      y = exp_below((left >= lanes ? get(x + v) : get_tail(x + v, left, R{0})) - shift) * inverse;
    y = (y - load(post + v)) * scale;
    left >= lanes ? put(g + v, y) : put_tail(g + v, left, y);
  }
}

template <class E>
void copy_out(const Real<E>* y, int64_t count, Real<E> scale, E* g, bool past_caches) {
  constexpr int lanes = lanes_of<Real<E>>;
  int64_t v = 0;
  if (past_caches) {
    constexpr uint64_t alignment = lanes * sizeof(E);
    v = static_cast<int64_t>(-reinterpret_cast<uint64_t>(g) % alignment / sizeof(E));
    if (v > count) v = count;
    put_tail(g, v, load(y) * scale);
    for (; v + lanes <= count; v += lanes) stream(g + v, load(y + v) * scale);
  }
  for (; v + lanes <= count; v += lanes) put(g + v, load(y + v) * scale);
  put_tail(g + v, count - v, load(y + v) * scale);
}

// Many classes: a chunk of the row is made on the stack, its few labels corrected, and copied out.
template <class E>
void grad_sparse(const CtcSequence& s, const E* x, E* g, int32_t t) {
  using R = Real<E>;
  constexpr int lanes = lanes_of<R>;
  constexpr int64_t chunk = 1024;
  alignas(64) R y[chunk + lanes];
  const R* post = static_cast<const R*>(s.post) + t * s.bin_stride;
  const auto scale = static_cast<R>(s.grad_scale);
  const Vec<R> shift = broadcast(static_cast<const R*>(s.row_max)[t]);
  const Vec<R> inverse = broadcast(1 / static_cast<const R*>(s.row_sum)[t]);
  const bool logits = s.input == CtcInput::logits;
  int64_t bin = 0;
  for (int64_t first = 0; first < s.classes; first += chunk) {
    const int64_t count = s.classes - first < chunk ? s.classes - first : chunk;
    for (int64_t v = 0; v < count; v += lanes) {
      const int64_t left = count - v;
      Vec<R> e = {};
      if (logits) {
        e = left >= lanes ? get(x + first + v) : get_tail(x + first + v, left, R{0});
        e = exp_below(e - shift) * inverse;
      }
      store(y + v, e);
    }
    for (; bin < s.bins && s.bin_class[bin] < first + count; ++bin) {
      y[s.bin_class[bin] - first] -= post[bin];
    }
    copy_out(y, count, scale, g + first, s.stream);
  }
}

template <class E>
void grad_rows(const CtcSequence& s, int32_t begin, int32_t end) {
  for (int32_t t = begin; t < end; ++t) {
    const int64_t row = (static_cast<int64_t>(s.row_offsets[t]) + s.sequence) * s.classes;
    const E* x = static_cast<const E*>(s.logits) + row;
    E* g = static_cast<E*>(s.grad) + row;
    if (s.classes <= ctc_dense_classes) {
      grad_dense(s, x, g, t);
    } else {
      grad_sparse(s, x, g, t);
    }
  }
#if defined(__x86_64__)
  if (s.stream) _mm_sfence();
#endif
}

}  // namespace

void ctc_rows(const CtcSequence& s, DType dtype, int32_t begin, int32_t end, int32_t slot) {
  switch (dtype) {
    case DType::f32:
      return rows<float>(s, begin, end, slot);
    case DType::bf16:
      return rows<uint16_t>(s, begin, end, slot);
    default:
      return rows<double>(s, begin, end, slot);
  }
}

void ctc_grad_rows(const CtcSequence& s, DType dtype, int32_t begin, int32_t end) {
  switch (dtype) {
    case DType::f32:
      return grad_rows<float>(s, begin, end);
    case DType::bf16:
      return grad_rows<uint16_t>(s, begin, end);
    default:
      return grad_rows<double>(s, begin, end);
  }
}

}  // namespace rondo::RONDO_ISA
