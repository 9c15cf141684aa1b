// One step of alpha and of beta with an exponent per state, for one sequence: the arithmetic that
// ctc_wide and ctc_chunk share, so that their results agree bit for bit. Included by their
// *_simd.cc alone.
//
// A number is mantissa * 2^exponent, both f64, the exponent integral and of any size; 0 has
// mantissa 0. A product's mantissa lies in [1, 2). A column's tile is [blank mantissas 8 |
// exponents 8 | label mantissas 8 | exponents 8].
#pragma once

#include "kernels/ctc/cpu/ctc_posterior.h"
#include "kernels/ctc/cpu/ctc_simd.h"
#include "kernels/ctc/ctc_impl.h"

extern "C" double log(double);

namespace rondo::RONDO_ISA {
namespace {

constexpr int parts = ctc_tile / WD;
constexpr double ln2 = 0x1.62e42fefa39efp-1;
constexpr double zero_exponent = -1e300;

struct Wide {
  vd m, e;
};

Wide zero() { return {vd{}, broadcast(zero_exponent)}; }

Wide get(const double* p) { return {load(p), load(p + ctc_tile)}; }
void put(double* p, Wide w) {
  store(p, w.m);
  store(p + ctc_tile, w.e);
}

// Zero where `condition` is 0. A zero must have zero's exponent, or sum() aligns to it.
Wide only_if(vd condition, Wide w) {
  const vl off = condition == 0.0;
  return {select(off, vd{}, w.m), select(off, broadcast(zero_exponent), w.e)};
}

Wide sum(Wide a, Wide b) {
  const vd e = max(a.e, b.e);
  return {a.m * power_of_two(a.e - e) + b.m * power_of_two(b.e - e), e};
}

Wide times(Wide a, vd m, vd e) {
  const vd product = a.m * m;
  const vl bits = bits_of(product);
  const vd magic = broadcast(6755399441055744.0);
  const vd shift = double_of(((bits >> 52) & 0x7ff) - 1023 + bits_of(magic)) - magic;
  const vl none = product == 0.0;
  const vd mantissa = double_of((bits & 0xfffffffffffff) | (int64_t{1023} << 52));
  return {select(none, vd{}, mantissa), select(none, broadcast(zero_exponent), a.e + e + shift)};
}

float value(float x) { return x; }
double value(double x) { return x; }
float value(uint16_t x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

// log of the sum over all alignments, as z * 2^z_exponent.
struct WideTotal {
  double z = 0, exponent = 0;
  double logarithm() const { return ::log(z) + exponent * ln2; }
};

// What a column given to step_beta holds.
enum class WideColumn : uint8_t {
  beta,
  emitted,  // beta times the probability of its frame: emit() has made it
};

template <class E, class Real>
class WideSteps {
 public:
  explicit WideSteps(CtcSequence& s)
      : s_(s), column_size_(static_cast<int64_t>(s.tiles) * ctc_wide_column_tile), sums_(s, -1) {}

  int64_t column_size() const { return column_size_; }
  void copy(const double* from, double* to) const {
    for (int64_t i = 0; i < column_size_; i += WD) store(to + i, load(from + i));
  }

  // `from` nullptr: frame t is the first one of the sequence.
  void step_alpha(const double* from, double* to, int32_t t) {
    make_y(t);
    Wide before = zero();
    for (int32_t k = 0; k < s_.tiles; ++k) {
      for (int j = 0; j < parts; ++j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        const int32_t i = k * ctc_tile + j * WD;
        Wide b = zero(), l = zero();
        if (from) {
          b = get(from + at);
          l = get(from + at + 2 * ctc_tile);
        } else if (i == 0) {
          b = start();
        }
        const Wide left = {shift_in(before.m, l.m), shift_in(before.e, l.e)};
        const Wide skipped = only_if(load(s_.may_skip + i), left);
        put(to + at, times(sum(b, left), blank_.mantissa, blank_.exponent));
        put(to + at + 2 * ctc_tile,
            times(sum(sum(l, b), skipped), load(s_.wide_y + i), load(s_.wide_y + s_.padded + i)));
        before = l;
      }
    }
  }

  // beta at the last frame of the sequence.
  void start_beta(double* to) const {
    for (int32_t k = 0; k < s_.tiles; ++k) {
      for (int i = 0; i < ctc_wide_column_tile; ++i) {
        to[k * ctc_wide_column_tile + i] = i / ctc_tile % 2 ? zero_exponent : 0;
      }
    }
    const auto set = [&](int32_t i, int part) {
      double* tile = to + i / ctc_tile * ctc_wide_column_tile + part * ctc_tile + i % ctc_tile;
      tile[0] = 1;
      tile[ctc_tile] = 0;
    };
    set(s_.label_count, 0);
    if (s_.label_count > 0) set(s_.label_count - 1, 2);
  }

  // beta from that of the frame after, which is frame `after` of this batch unless emitted.
  template <WideColumn holds>
  void step_beta(const double* from, double* to, int32_t after) {
    if constexpr (holds == WideColumn::beta) make_y(after);
    Wide after_b = zero(), after_l = zero();
    for (int32_t k = s_.tiles - 1; k >= 0; --k) {
      for (int j = parts - 1; j >= 0; --j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        const int32_t i = k * ctc_tile + j * WD;
        Wide b = get(from + at), l = get(from + at + 2 * ctc_tile);
        if constexpr (holds == WideColumn::beta) {
          b = times(b, blank_.mantissa, blank_.exponent);
          l = times(l, load(s_.wide_y + i), load(s_.wide_y + s_.padded + i));
        }
        const Wide next_b = {shift_out(b.m, after_b.m), shift_out(b.e, after_b.e)};
        const Wide next_l = only_if(load(s_.may_skip + i + 1),
                                    {shift_out(l.m, after_l.m), shift_out(l.e, after_l.e)});
        put(to + at, sum(b, l));
        put(to + at + 2 * ctc_tile, sum(sum(l, next_b), next_l));
        after_b = b;
        after_l = l;
      }
    }
  }

  // beta of frame t times the probabilities of that frame: what the frame before needs of it.
  void emit(const double* from, double* to, int32_t t) {
    make_y(t);
    for (int32_t k = 0; k < s_.tiles; ++k) {
      for (int j = 0; j < parts; ++j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        const int32_t i = k * ctc_tile + j * WD;
        put(to + at, times(get(from + at), blank_.mantissa, blank_.exponent));
        put(to + at + 2 * ctc_tile, times(get(from + at + 2 * ctc_tile), load(s_.wide_y + i),
                                          load(s_.wide_y + s_.padded + i)));
      }
    }
  }

  // From alpha of the last frame; z is 0 if there is no alignment.
  WideTotal end_sum(const double* a) const {
    double m[2] = {0, 0}, e[2] = {zero_exponent, zero_exponent};
    const auto take = [&](int32_t i, int part, int to) {
      const double* tile = a + i / ctc_tile * ctc_wide_column_tile + part * ctc_tile + i % ctc_tile;
      m[to] = tile[0];
      e[to] = tile[ctc_tile];
    };
    take(s_.label_count, 0, 0);
    if (s_.label_count > 0) take(s_.label_count - 1, 2, 1);
    WideTotal total;
    total.exponent = e[0] > e[1] ? e[0] : e[1];
    for (int i = 0; i < 2; ++i) {
      total.z += m[i] * power_of_two(broadcast(e[i] - total.exponent))[0];
    }
    return total;
  }

  // The posteriors of frame t, frames in descending order; flush() after the last one.
  void posterior(int32_t t, const double* a, const double* b, const WideTotal& total) {
    Real* row = sums_.row();
    vd blanks = {};
    for (int32_t k = 0; k < s_.tiles; ++k) {
      for (int j = 0; j < parts; ++j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        blanks += product(a + at, b + at, total);
        store_narrow(row + k * ctc_tile + j * WD,
                     product(a + at + 2 * ctc_tile, b + at + 2 * ctc_tile, total));
      }
    }
    for (int32_t i = s_.tiles * ctc_tile; i < s_.padded; ++i) row[i] = 0;
    sums_.finish_row(t, sum_lanes<double>(blanks));
  }
  void flush() { sums_.flush(); }

 private:
  // Probability 1 in the blank before the first label.
  static Wide start() {
    Wide w = zero();
    w.m[0] = 1;
    w.e[0] = 0;
    return w;
  }

  static vd product(const double* a, const double* b, const WideTotal& total) {
    const Wide x = get(a), y = get(b);
    return x.m * y.m * power_of_two(x.e + y.e - total.exponent) / total.z;
  }

  // y of frame t into wide_y, without the rows' f32 range.
  void make_y(int32_t t) {
    const E* x = static_cast<const E*>(s_.logits) +
                 (static_cast<int64_t>(s_.row_offsets[t]) + s_.sequence) * s_.classes;
    const double shift = static_cast<double>(static_cast<const Real*>(s_.row_max)[t]);
    double* m = s_.wide_y;
    double* e = m + s_.padded;
    for (int32_t i = 0; i < s_.padded; ++i) {
      m[i] = i < s_.label_count ? static_cast<double>(value(x[s_.label_class[i]])) - shift
                                : -__builtin_inf();
    }
    for (int32_t i = 0; i < s_.padded; i += WD) {
      const Split y = exp_split(load(m + i));
      store(m + i, y.mantissa);
      store(e + i, y.exponent);
    }
    blank_ = exp_split(broadcast(static_cast<double>(value(x[s_.blank])) - shift));
  }

  CtcSequence& s_;
  const int64_t column_size_;
  PosteriorSums<Real> sums_;
  Split blank_ = {};
};

}  // namespace
}  // namespace rondo::RONDO_ISA
