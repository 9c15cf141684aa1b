// alpha and beta in linear space, meeting in the middle. Compiled once per instruction set.
//
// Both recursions run in f64 on exp(logit - max of the row); the row's normaliser is accounted for
// in the loss alone, since posteriors do not depend on it. Of the frames below the middle alpha is
// stored, of the others beta; then both go on, and each frame's posterior is made when the one that
// was not stored gets there.
//
// Range: each tile of 8 labels carries a power of two, set again (renormalise) before values can
// have lost 400 bits or grown by 400. States that then lie 500 bits below their tile's scale are
// clipped: alpha's are raised to 2^-500, beta's are dropped. Nothing else is ever lost to
// underflow: a state on a complete alignment is above 2^-900 until the next time. So alpha is never
// too small and beta never too large: the sum over the states of alpha * beta is an upper bound of
// Z at the last frame and a lower bound at the first. Each frame's sum is compared with the one in
// the middle; if they agree, what was clipped did not matter; otherwise ctc_wide takes over.
// Without a gradient there are no such sums: if anything was clipped, the loss is computed twice,
// clipping upwards only and downwards only. States off every complete alignment are not computed
// by whole tiles, and cleared within one.
#include "kernels/ctc/cpu/ctc_posterior.h"
#include "kernels/ctc/cpu/ctc_simd.h"
#include "kernels/ctc/ctc_impl.h"

extern "C" double log(double);

namespace rondo::RONDO_ISA {
namespace {

constexpr int parts = ctc_tile / WD;  // vectors per half tile
constexpr int32_t decay_budget = 400, growth_budget = 400, steepest = 400;
constexpr double smallest = 0x1p-500;
// Sums may differ by rounding: a few ulps of f64 per frame.
constexpr double agreement_per_frame = 0x1p-44;
constexpr int32_t posterior_limit = 900;

int32_t exponent_of(double x) {
  return static_cast<int32_t>((__builtin_bit_cast(uint64_t, x) >> 52) & 0x7ff) - 1023;
}
double power_of_two(int32_t n) {
  return __builtin_bit_cast(double, static_cast<int64_t>(n + 1023) << 52);
}
int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

void clear_tile(double* column, int32_t k) {
  for (int i = 0; i < ctc_column_tile; i += WD) store(column + k * ctc_column_tile + i, vd{});
}

// A positive number of any size: fraction * 2^exponent.
struct Product {
  double fraction = 1;
  int64_t exponent = 0;
  void multiply(double x) {
    fraction *= x;
    const int32_t e = exponent_of(fraction);
    exponent += e;
    fraction *= power_of_two(-e);
  }
  double logarithm() const {
    return ::log(fraction) + static_cast<double>(exponent) * 0x1.62e42fefa39efp-1;
  }
};

// What becomes of values below `smallest`.
enum class Clip : uint8_t { up, down };

template <class Real>
class Lattice {
 public:
  Lattice(CtcSequence& s, DType dtype, Clip alpha_clip, Clip beta_clip)
      : s_(s),
        dtype_(dtype),
        with_grad_(s.grad != nullptr),
        middle_(s.frames / 2),
        column_size_(static_cast<int64_t>(s.tiles) * ctc_column_tile),
        y_(static_cast<const Real*>(s.y)),
        y_blank_(static_cast<const Real*>(s.y_blank)),
        alpha_clip_(alpha_clip),
        beta_clip_(beta_clip),
        up_(s, 1),
        down_(s, -1) {}

  // False: out of range, or what was clipped mattered.
  bool run() { return start() && first_half() && meet() && second_half(); }

  // Only once every frame has been seen; the range may have ended before.
  bool not_a_number() const { return frames_seen_ == s_.frames && not_a_number_; }
  bool clipped() const { return clipped_; }
  double loss() const { return norm_up_.logarithm() + norm_down_.logarithm() - log_z_ - shifts_; }

 private:
  struct Range {
    int32_t first, last;
  };
  Range range(int32_t t) const { return {s_.first_tile[t], s_.last_tile[t]}; }
  double* stored(int32_t t) const { return s_.columns + t * column_size_; }
  double* scratch(int i) const { return s_.scratch + i * column_size_; }

  // Where row t lies: for alpha's side slot 0, for beta's side the ring after it.
  int64_t row_at(int32_t t, bool up) const {
    return s_.ring ? (up ? 0 : s_.ring) + t % s_.ring : t;
  }

  // Makes row t when there is only a ring of rows, and counts its normaliser; once per frame.
  int64_t take_row(int32_t t, bool up) {
    if (s_.ring && (up ? t % s_.ring == 0 : t % s_.ring == s_.ring - 1 || t == s_.frames - 1)) {
      const int32_t begin = t - t % s_.ring;
      int32_t end = begin + s_.ring;
      if (end > s_.frames) end = s_.frames;
      ctc_rows(s_, dtype_, begin, end, up ? 0 : s_.ring);
    }
    const int64_t at = row_at(t, up);
    const auto sum = static_cast<double>(static_cast<const Real*>(s_.row_sum)[at]);
    if (!(sum < __builtin_inf())) not_a_number_ = true;
    if (s_.input == CtcInput::logits) {
      (up ? norm_up_ : norm_down_).multiply(sum);
    } else {
      shifts_ += static_cast<double>(static_cast<const Real*>(s_.row_max)[at]);
    }
    ++frames_seen_;
    return at;
  }

  void reset(CtcSweep& sweep) {
    for (int32_t k = 0; k < s_.tiles; ++k) sweep.exponent[k] = 0;
    const int32_t next = &sweep == &s_.beta ? 1 : 0;
    for (int32_t i = 0; i < s_.padded; ++i) {
      sweep.carry[i] = 1;
      sweep.skip[i] = s_.may_skip[i + next];
    }
    sweep.bits = sweep.frames = 0;
    sweep.limit = 64;
  }

  int32_t push_profile(const CtcSweep& sweep) {
    int32_t* out = s_.profiles + static_cast<int64_t>(profiles_) * s_.tiles;
    for (int32_t k = 0; k < s_.tiles; ++k) out[k] = sweep.exponent[k];
    return profiles_++;
  }

  // alpha at frame 0 and beta at the last frame.
  bool start() {
    reset(s_.alpha);
    reset(s_.beta);
    alpha_profile_ = push_profile(s_.alpha);
    beta_profile_ = push_profile(s_.beta);
    const int32_t last = s_.frames - 1;
    beta_ = with_grad_ ? stored(last) : scratch(2);
    for (int32_t k = range(last).first; k <= range(last).last; ++k) clear_tile(beta_, k);
    const int32_t end = s_.label_count;
    beta_[end / ctc_tile * ctc_column_tile + end % ctc_tile] = 1;
    if (end > 0)
      beta_[(end - 1) / ctc_tile * ctc_column_tile + ctc_tile + (end - 1) % ctc_tile] = 1;
    if (with_grad_) s_.profile_of[last] = beta_profile_;
    beta_frame_ = last;
    alpha_frame_ = -1;
    alpha_ = scratch(0);
    if (middle_ == 0) return true;
    return advance_alpha(with_grad_);
  }

  bool first_half() {
    for (int32_t i = 1; i < s_.frames - middle_; ++i) {
      if (i < middle_ && !advance_alpha(with_grad_)) return false;
      if (!advance_beta(with_grad_)) return false;
    }
    return true;
  }

  // alpha reaches the frame whose beta is the last one stored: Z is their inner product.
  bool meet() {
    if (!advance_alpha(false)) return false;
    const Range r = range(middle_);
    const int32_t* beta_exponent = with_grad_ ? profile(s_.profile_of[middle_]) : s_.beta.exponent;
    const double* beta = beta_;
    int64_t top = INT64_MIN;
    for (int pass = 0; pass < 2; ++pass) {
      double z = 0;
      for (int32_t k = r.first; k <= r.last; ++k) {
        vd sum = {};
        for (int i = 0; i < ctc_column_tile; i += WD) {
          const int64_t at = k * ctc_column_tile + i;
          sum += load(alpha_ + at) * load(beta + at);
        }
        const double product = sum_lanes<double>(sum);
        if (!(product > 0)) continue;
        const int64_t e = static_cast<int64_t>(s_.alpha.exponent[k]) + beta_exponent[k];
        if (pass == 0) {
          if (e + exponent_of(product) > top) top = e + exponent_of(product);
        } else if (const int64_t shift = e + exponent_of(product) - top; shift > -200) {
          z += product * power_of_two(-exponent_of(product)) *
               power_of_two(static_cast<int32_t>(shift));
        }
      }
      if (top == INT64_MIN) return false;
      z_ = z;
    }
    z_exponent_ = top;
    log_z_ = ::log(z_) + static_cast<double>(top) * 0x1.62e42fefa39efp-1;
    return true;
  }

  bool second_half() {
    if (!with_grad_) return true;
    if (not_a_number_) return true;
    for (int32_t i = 0; middle_ + i < s_.frames; ++i) {
      if (i > 0 && !advance_alpha(false)) return false;
      if (!posterior(middle_ + i, alpha_, stored(middle_ + i), s_.alpha, up_factor_, up_))
        return false;
      if (i >= middle_) continue;
      if (!advance_beta(false)) return false;
      if (!posterior(middle_ - 1 - i, beta_, stored(middle_ - 1 - i), s_.beta, down_factor_,
                     down_)) {
        return false;
      }
    }
    up_.flush();
    down_.flush();
    return true;
  }

  const int32_t* profile(int32_t index) const {
    return s_.profiles + static_cast<int64_t>(index) * s_.tiles;
  }

  // Renormalises the current column if the coming frame could take it out of range.
  bool make_room(CtcSweep& sweep, double* column, int32_t t, int32_t drop, bool up) {
    if (drop > decay_budget) return false;
    if (sweep.bits + drop > decay_budget || sweep.frames >= sweep.limit) {
      renormalise(sweep, column, t, up);
      const bool is_stored = with_grad_ && column == stored(t);
      if (is_stored) {
        s_.profile_of[t] = (up ? alpha_profile_ : beta_profile_) = push_profile(sweep);
      }
      (up ? up_factor_ : down_factor_) = -1;
    }
    sweep.bits += drop;
    ++sweep.frames;
    return true;
  }

  bool advance_alpha(bool store_it) {
    const int32_t t = ++alpha_frame_;
    const int64_t at = t <= middle_ ? take_row(t, true) : row_at(t, true);
    const Real* y = y_ + at * s_.padded;
    double* to = store_it ? stored(t) : alpha_ == scratch(0) ? scratch(1) : scratch(0);
    if (t == 0) {
      if (s_.drop[at] > decay_budget) return false;
      clear_tile(to, 0);
      to[0] = static_cast<double>(y_blank_[at]);
      to[ctc_tile] = static_cast<double>(y[0]);
      s_.alpha.bits = s_.drop[at];
      s_.alpha.frames = 1;
    } else {
      if (!make_room(s_.alpha, alpha_, t - 1, s_.drop[at], true)) return false;
      if (range(t).last > range(t - 1).last) clear_tile(alpha_, range(t).last);
      alpha_step(alpha_, to, t, y, static_cast<double>(y_blank_[at]));
    }
    if (store_it) s_.profile_of[t] = alpha_profile_;
    alpha_ = to;
    return true;
  }

  bool advance_beta(bool store_it) {
    const int32_t t = --beta_frame_;
    const int64_t at = t + 1 > middle_ ? take_row(t + 1, false) : row_at(t + 1, true);
    const Real* y = y_ + at * s_.padded;
    double* to = store_it ? stored(t) : beta_ == scratch(2) ? scratch(3) : scratch(2);
    if (!make_room(s_.beta, beta_, t + 1, s_.drop[at], false)) return false;
    if (range(t).first < range(t + 1).first) clear_tile(beta_, range(t).first);
    beta_step(beta_, to, t, y, static_cast<double>(y_blank_[at]));
    if (store_it) s_.profile_of[t] = beta_profile_;
    beta_ = to;
    return true;
  }

  // blank i: from itself and label i - 1; label i: from itself, blank i and, if it may, label i
  // - 1.
  void alpha_step(const double* from, double* to, int32_t t, const Real* y, double y_blank) {
    const Range r = range(t);
    const vd yb = broadcast(y_blank);
    vd before = {};
    if (r.first > range(t - 1).first) {
      before = load(from + r.first * ctc_column_tile - WD);
    }
    for (int32_t k = r.first; k <= r.last; ++k) {
      const double* in = from + k * ctc_column_tile;
      double* out = to + k * ctc_column_tile;
      for (int j = 0; j < parts; ++j) {
        const int32_t at = k * ctc_tile + j * WD;
        const vd b = load(in + j * WD), l = load(in + ctc_tile + j * WD);
        const vd left = shift_in(before, l);
        store(out + j * WD, (left * load(s_.alpha.carry + at) + b) * yb);
        store(out + ctc_tile + j * WD,
              (left * load(s_.alpha.skip + at) + (l + b)) * load_wide(y + at));
        before = l;
      }
    }
  }

  // beta has no emission at its own frame: with g = beta * y at t + 1, blank i goes on to itself
  // and label i; label i to itself, blank i + 1 and, if it may, label i + 1.
  void beta_step(const double* from, double* to, int32_t t, const Real* y, double y_blank) {
    const Range r = range(t);
    const vd yb = broadcast(y_blank);
    vd after_b = {}, after_l = {};
    if (r.last < range(t + 1).last) {
      const double* above = from + (r.last + 1) * ctc_column_tile;
      after_b = load(above) * yb;
      after_l = load(above + ctc_tile) * load_wide(y + (r.last + 1) * ctc_tile);
    }
    for (int32_t k = r.last; k >= r.first; --k) {
      const double* in = from + k * ctc_column_tile;
      double* out = to + k * ctc_column_tile;
      for (int j = parts - 1; j >= 0; --j) {
        const int32_t at = k * ctc_tile + j * WD;
        const vd b = load(in + j * WD) * yb, l = load(in + ctc_tile + j * WD) * load_wide(y + at);
        store(out + j * WD, b + l);
        store(out + ctc_tile + j * WD, l + shift_out(b, after_b) * load(s_.beta.carry + at) +
                                           shift_out(l, after_l) * load(s_.beta.skip + at));
        after_b = b;
        after_l = l;
      }
    }
  }

  struct Extremes {
    double largest, least;
  };

  // States off every complete alignment are left out.
  Extremes extremes_of_tile(const double* column, int32_t k, int32_t t) const {
    vd largest = {}, least = broadcast(0x1p1000);
    for (int32_t i = k * ctc_column_tile; i < (k + 1) * ctc_column_tile; i += WD) {
      const vl counts = counting(i, t);
      const vd v = load(column + i);
      largest = max(select(counts, v, vd{}), largest);
      least = min(select(counts, v, broadcast(0x1p1000)), least);
    }
    return {max_lanes<double>(largest), min_lanes<double>(least)};
  }

  vl counting(int32_t place, int32_t t) const {
    const vd now = broadcast(static_cast<double>(t));
    const vd left = broadcast(static_cast<double>(s_.frames - 1 - t));
    return (load(s_.reach + place) <= now) & (load(s_.finish + place) <= left);
  }

  void scale_tile(double* column, int32_t k, int32_t t, double scale, Clip clip) const {
    const vd instead = broadcast(clip == Clip::up ? smallest : 0.0);
    for (int32_t i = k * ctc_column_tile; i < (k + 1) * ctc_column_tile; i += WD) {
      const vd v = load(column + i) * scale;
      store(column + i, select(counting(i, t), select(v < smallest, instead, v), vd{}));
    }
  }

  // Sets each tile's power of two by its largest value, in the direction of the flow, since a tile
  // must not be scaled so low that what comes in overflows.
  void renormalise(CtcSweep& sweep, double* column, int32_t t, bool up) {
    const Range r = range(t);
    const int32_t step = up ? 1 : -1, begin = up ? r.first : r.last, end = up ? r.last : r.first;
    int32_t slope = 0;
    for (int32_t k = begin; k != end + step; k += step) {
      const Extremes e = extremes_of_tile(column, k, t);
      const int32_t old = sweep.exponent[k];
      const bool has_source = k != begin;
      const int32_t source = has_source ? sweep.exponent[k - step] : old;
      int32_t exponent = source;
      if (e.largest > 0) {
        exponent = old + exponent_of(e.largest) + 1;
        if (has_source && exponent < source - steepest) exponent = source - steepest;
      }
      sweep.exponent[k] = exponent;
      if (source - exponent > slope && has_source) slope = source - exponent;
      const double scale = power_of_two(clamp(old - exponent, -1022, 1023));
      scale_tile(column, k, t, scale, up ? alpha_clip_ : beta_clip_);
      if (!(e.least * scale >= smallest)) clipped_ = true;
    }
    finish_scales(sweep, begin, end, slope, up);
  }

  // Tiles not reached yet take the last scale; the seams get the ratios.
  void finish_scales(CtcSweep& sweep, int32_t begin, int32_t end, int32_t slope, bool up) {
    const int32_t step = up ? 1 : -1;
    for (int32_t k = end + step; k >= 0 && k < s_.tiles; k += step) {
      sweep.exponent[k] = sweep.exponent[end];
    }
    for (int32_t k = begin + step; k >= 0 && k < s_.tiles; k += step) {
      const int32_t change = sweep.exponent[k - step] - sweep.exponent[k];
      double ratio = power_of_two(clamp(change, -1022, 1023));
      if (change < -1022 && (up ? alpha_clip_ : beta_clip_) == Clip::down) ratio = 0;
      const int32_t seam = k * ctc_tile + (up ? 0 : ctc_tile - 1);
      sweep.carry[seam] = ratio;
      // For beta, position i goes on to i + 1, which is where may_skip has its entry.
      sweep.skip[seam] = s_.may_skip[up ? seam : seam + 1] * ratio;
    }
    sweep.bits = sweep.frames = 0;
    // A value crosses the first seam at once and each further one 8 frames later.
    sweep.limit = slope * 8 > growth_budget ? 1 + 8 * (growth_budget - slope) / slope : 64;
  }

  // What turns alpha * beta of tile k into posteriors. One that large can only come from products
  // near the end of the range: infinity then makes the frame's sum miss 1.
  void set_factors(int32_t t, const CtcSweep& sweep, double* factor, int32_t& current) {
    if (current == s_.profile_of[t]) return;
    current = s_.profile_of[t];
    const int32_t* other = profile(current);
    for (int32_t k = 0; k < s_.tiles; ++k) {
      const int64_t e = static_cast<int64_t>(sweep.exponent[k]) + other[k] - z_exponent_;
      factor[k] = e > posterior_limit ? __builtin_inf()
                  : e < -1022         ? 0
                                      : power_of_two(static_cast<int32_t>(e)) / z_;
    }
  }

  bool posterior(int32_t t, const double* a, const double* b, const CtcSweep& sweep,
                 int32_t& current, PosteriorSums<Real>& sums) {
    double* factor = s_.factor + (&sweep == &s_.alpha ? 0 : s_.tiles);
    set_factors(t, sweep, factor, current);
    const Range r = range(t);
    Real* row = sums.row();
    vd blanks = {}, labels = {};
    for (int32_t i = 0; i < r.first * ctc_tile; i += WD) store_narrow(row + i, vd{});
    for (int32_t k = r.first; k <= r.last; ++k) {
      const double* at = a + k * ctc_column_tile;
      const double* bt = b + k * ctc_column_tile;
      const vd f = broadcast(factor[k]);
      for (int j = 0; j < parts; ++j) {
        blanks += load(at + j * WD) * load(bt + j * WD) * f;
        const vd p = load(at + ctc_tile + j * WD) * load(bt + ctc_tile + j * WD) * f;
        labels += p;
        store_narrow(row + k * ctc_tile + j * WD, p);
      }
    }
    for (int32_t i = (r.last + 1) * ctc_tile; i < s_.padded; i += WD) store_narrow(row + i, vd{});
    const double blank = sum_lanes<double>(blanks);
    const double off = blank + sum_lanes<double>(labels) - 1;
    sums.finish_row(t, blank);
    const double allowed = agreement_per_frame * s_.frames;
    return off < allowed && off > -allowed;
  }

  CtcSequence& s_;
  const DType dtype_;
  const bool with_grad_;
  const int32_t middle_;
  const int64_t column_size_;
  const Real* const y_;
  const Real* const y_blank_;
  const Clip alpha_clip_, beta_clip_;
  PosteriorSums<Real> up_, down_;
  double *alpha_ = nullptr, *beta_ = nullptr;  // current columns
  int32_t alpha_frame_ = 0, beta_frame_ = 0;
  int32_t profiles_ = 0, alpha_profile_ = 0, beta_profile_ = 0;
  int32_t up_factor_ = -1, down_factor_ = -1;  // the stored profile that the factors are for
  int32_t frames_seen_ = 0;
  bool not_a_number_ = false, clipped_ = false;
  Product norm_up_, norm_down_;
  double shifts_ = 0, z_ = 1, log_z_ = 0;
  int64_t z_exponent_ = 0;
};

template <class Real>
CtcLoss with_gradient(CtcSequence& s, DType dtype) {
  Lattice<Real> lattice(s, dtype, Clip::up, Clip::down);
  const bool right = lattice.run();
  if (lattice.not_a_number()) return {0, CtcLoss::not_a_number};
  return right ? CtcLoss{lattice.loss(), CtcLoss::finite} : ctc_wide(s, dtype);
}

template <class Real>
CtcLoss loss_only(CtcSequence& s, DType dtype) {
  Lattice<Real> above(s, dtype, Clip::up, Clip::up);
  const bool in_range = above.run();
  if (above.not_a_number()) return {0, CtcLoss::not_a_number};
  if (!in_range) return ctc_wide(s, dtype);
  if (!above.clipped()) return {above.loss(), CtcLoss::finite};
  Lattice<Real> below(s, dtype, Clip::down, Clip::down);
  if (!below.run()) return ctc_wide(s, dtype);
  const double apart = below.loss() - above.loss(), allowed = agreement_per_frame * s.frames;
  const bool right = apart <= allowed && apart >= -allowed;
  return right ? CtcLoss{above.loss(), CtcLoss::finite} : ctc_wide(s, dtype);
}

}  // namespace

CtcLoss ctc_lattice(CtcSequence& s, DType dtype) {
  if (dtype == DType::f64)
    return s.grad ? with_gradient<double>(s, dtype) : loss_only<double>(s, dtype);
  return s.grad ? with_gradient<float>(s, dtype) : loss_only<float>(s, dtype);
}

}  // namespace rondo::RONDO_ISA
