// alpha and beta with an exponent per state: no range to leave, for sequences too peaked for
// ctc_lattice and for impossible ones. Compiled once per instruction set.
//
// A number is mantissa * 2^exponent, both f64, the exponent integral and of any size; 0 has
// mantissa 0. alpha is kept at every block's first frame and made again block by block while beta
// comes down: the memory is O(sqrt(T) L).
#include "kernels/ctc/ctc_impl.h"
#include "kernels/ctc/ctc_posterior.h"
#include "kernels/ctc/ctc_simd.h"

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

// A column's tile is [blank mantissas 8 | exponents 8 | label mantissas 8 | exponents 8].
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

template <class E, class Real>
class WideLattice {
 public:
  WideLattice(CtcSequence& s, DType dtype)
      : s_(s),
        dtype_(dtype),
        block_(ctc_wide_block(s.frames)),
        column_size_(static_cast<int64_t>(s.tiles) * ctc_wide_column_tile),
        sums_(s, -1) {}

  CtcLoss run() {
    const bool with_grad = s_.grad != nullptr;
    double* a = with_grad ? work(0) : s_.scratch;
    double* b = with_grad ? work(1) : s_.scratch + column_size_;
    for (int32_t t = 0; t < s_.frames; ++t) {
      if (!take_row(t)) return {0, CtcLoss::not_a_number};
      step_alpha(a, b, t);
      double* next = a;
      a = b;
      b = next;
      if (with_grad && t % block_ == 0) copy(a, checkpoint(t / block_));
    }
    if (!end_sum(a)) return {0, CtcLoss::impossible};
    if (with_grad) {
      gradient();
      sums_.flush();
    }
    const double log_z = ::log(z_) + z_exponent_ * ln2;
    return {-(log_z + shifts_), CtcLoss::finite};
  }

 private:
  double* checkpoint(int32_t i) const { return s_.columns + i * column_size_; }
  double* in_block(int32_t i) const { return checkpoint((s_.frames + block_ - 1) / block_ + i); }
  double* work(int32_t i) const { return in_block(block_ + i); }

  void copy(const double* from, double* to) const {
    for (int64_t i = 0; i < column_size_; i += WD) store(to + i, load(from + i));
  }

  int64_t row_at(int32_t t) const { return s_.ring ? t % s_.ring : t; }

  bool take_row(int32_t t) {
    if (s_.ring && t % s_.ring == 0) {
      const int32_t end = t + s_.ring < s_.frames ? t + s_.ring : s_.frames;
      ctc_rows(s_, dtype_, t, end, 0);
    }
    const int64_t at = row_at(t);
    const auto row_sum = static_cast<double>(static_cast<const Real*>(s_.row_sum)[at]);
    if (!(row_sum < __builtin_inf())) return false;
    shifts_ += s_.input == CtcInput::logits
                   ? -::log(row_sum)
                   : static_cast<double>(static_cast<const Real*>(s_.row_max)[at]);
    return true;
  }

  // y of frame t into wide_y, without the rows' f32 range.
  void make_y(int32_t t) {
    const E* x = static_cast<const E*>(s_.logits) +
                 (static_cast<int64_t>(s_.row_offsets[t]) + s_.sequence) * s_.classes;
    const double shift = static_cast<double>(static_cast<const Real*>(s_.row_max)[row_at(t)]);
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

  void step_alpha(const double* from, double* to, int32_t t) {
    make_y(t);
    Wide before = zero();
    for (int32_t k = 0; k < s_.tiles; ++k) {
      for (int j = 0; j < parts; ++j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        const int32_t i = k * ctc_tile + j * WD;
        Wide b = zero(), l = zero();
        if (t > 0) {
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

  // Probability 1 in the blank before the first label.
  static Wide start() {
    Wide w = zero();
    w.m[0] = 1;
    w.e[0] = 0;
    return w;
  }

  void start_beta(double* to) {
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

  void step_beta(const double* from, double* to, int32_t t) {
    make_y(t + 1);
    Wide after_b = zero(), after_l = zero();
    for (int32_t k = s_.tiles - 1; k >= 0; --k) {
      for (int j = parts - 1; j >= 0; --j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        const int32_t i = k * ctc_tile + j * WD;
        const Wide b = times(get(from + at), blank_.mantissa, blank_.exponent);
        const Wide l = times(get(from + at + 2 * ctc_tile), load(s_.wide_y + i),
                             load(s_.wide_y + s_.padded + i));
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

  // Z from alpha of the last frame; false if it is 0.
  bool end_sum(const double* a) {
    double m[2] = {0, 0}, e[2] = {zero_exponent, zero_exponent};
    const auto take = [&](int32_t i, int part, int to) {
      const double* tile = a + i / ctc_tile * ctc_wide_column_tile + part * ctc_tile + i % ctc_tile;
      m[to] = tile[0];
      e[to] = tile[ctc_tile];
    };
    take(s_.label_count, 0, 0);
    if (s_.label_count > 0) take(s_.label_count - 1, 2, 1);
    z_exponent_ = e[0] > e[1] ? e[0] : e[1];
    z_ = 0;
    for (int i = 0; i < 2; ++i) z_ += m[i] * power_of_two(broadcast(e[i] - z_exponent_))[0];
    return z_ > 0;
  }

  void gradient() {
    double* beta = work(0);
    double* next = work(1);
    start_beta(beta);
    for (int32_t block = (s_.frames - 1) / block_; block >= 0; --block) {
      const int32_t begin = block * block_;
      const int32_t end = begin + block_ < s_.frames ? begin + block_ : s_.frames;
      copy(checkpoint(block), in_block(0));
      for (int32_t t = begin + 1; t < end; ++t) {
        step_alpha(in_block(t - 1 - begin), in_block(t - begin), t);
      }
      for (int32_t t = end - 1; t >= begin; --t) {
        if (t < s_.frames - 1) {
          step_beta(beta, next, t);
          double* other = beta;
          beta = next;
          next = other;
        }
        posterior(t, in_block(t - begin), beta);
      }
    }
  }

  vd product(const double* a, const double* b) const {
    const Wide x = get(a), y = get(b);
    return x.m * y.m * power_of_two(x.e + y.e - z_exponent_) / z_;
  }

  void posterior(int32_t t, const double* a, const double* b) {
    Real* row = sums_.row();
    vd blanks = {};
    for (int32_t k = 0; k < s_.tiles; ++k) {
      for (int j = 0; j < parts; ++j) {
        const int64_t at = k * ctc_wide_column_tile + j * WD;
        blanks += product(a + at, b + at);
        store_narrow(row + k * ctc_tile + j * WD,
                     product(a + at + 2 * ctc_tile, b + at + 2 * ctc_tile));
      }
    }
    for (int32_t i = s_.tiles * ctc_tile; i < s_.padded; ++i) row[i] = 0;
    sums_.finish_row(t, sum_lanes<double>(blanks));
  }

  CtcSequence& s_;
  const DType dtype_;
  const int32_t block_;
  const int64_t column_size_;
  PosteriorSums<Real> sums_;
  Split blank_ = {};
  double shifts_ = 0, z_ = 0, z_exponent_ = 0;
};

}  // namespace

CtcLoss ctc_wide(CtcSequence& s, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return WideLattice<float, float>(s, dtype).run();
    case DType::bf16:
      return WideLattice<uint16_t, float>(s, dtype).run();
    default:
      return WideLattice<double, double>(s, dtype).run();
  }
}

}  // namespace rondo::RONDO_ISA
