// alpha and beta in linear space, meeting in the middle. Compiled once per instruction set.
//
// Both recursions run in f64 on exp(logit - max of the row); the row's normaliser is accounted for
// in the loss alone, since posteriors do not depend on it. Of the frames below the middle alpha is
// stored, of the others beta; then both go on, and each frame's posterior is made when the one that
// was not stored gets there. The two directions share nothing but the meeting, and may run on two
// threads; the result is the same.
//
// A lattice that is too large to be kept is walked in segments: the first half stores a column per
// segment, its head, and what the second half meets is made again from there, a segment at a time,
// by the direction that needs it. That is half as many steps once more, and the same bits.
//
// Range: each tile of 8 labels carries a power of two, set again (make_room) before values can
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
#include "kernels/ctc/cpu/ctc_scaled_steps.h"
#include "kernels/ctc/ctc_impl.h"

extern "C" double log(double);

namespace rondo::RONDO_ISA {
namespace {

// Sums may differ by rounding: a few ulps of f64 per frame.
constexpr double agreement_per_frame = 0x1p-44;
constexpr int32_t posterior_limit = 900;
constexpr double ln2 = 0x1.62e42fefa39efp-1;

void copy_column(const double* from, double* to, int64_t size) {
  for (int64_t i = 0; i < size; i += WD) store(to + i, load(from + i));
}

// One direction over all frames: alpha upwards, beta downwards. What has to outlive a half is in
// s.side, so that each half is an object of its own.
template <class Real>
class Half {
 public:
  Half(CtcSequence& s, DType dtype, bool up, Clip alpha_clip, Clip beta_clip)
      : s_(s),
        dtype_(dtype),
        up_(up),
        middle_(s.frames / 2),
        column_size_(static_cast<int64_t>(s.tiles) * ctc_column_tile),
        side_(s.side[up]),
        steps_(s, side_.sweep, up, up ? alpha_clip : beta_clip),
        again_(s, side_.again, !up, up ? beta_clip : alpha_clip) {}

  // As far as the middle: to the frame whose beta is the last one stored.
  void first() {
    start();
    while (side_.in_range && side_.frame != middle_) advance(true, keeps(next_frame()));
  }

  // On from there, through what the other direction has stored.
  void second() {
    PosteriorSums<Real> sums(s_, up_ ? 1 : -1);
    side_.factor_of = -1;
    side_.rows_from = -1;
    if (!up_) leave_stored();
    const bool all = s_.kept ? whole(sums) : in_segments(sums);
    sums.flush();
    side_.in_range = all;
  }

 private:
  int32_t next_frame() const { return side_.frame + (up_ ? 1 : -1); }
  bool with_grad() const { return s_.grad != nullptr; }
  // Whether this direction leaves its column of frame t in its memory.
  bool keeps(int32_t t) const { return with_grad() && (up_ ? t < middle_ : t >= middle_); }

  int64_t place(int32_t t) const { return s_.kept ? t : t % s_.ring; }
  double* column_of(const CtcStored& stored, int32_t t) const {
    return stored.columns + place(t) * column_size_;
  }
  // Which stored column has the scales of now.
  void put_profile(CtcStored& stored, int32_t t) const {
    stored.profile_of[place(t)] = stored.profile_count - 1;
  }
  void push_profile(CtcStored& stored, const CtcSweep& sweep, int32_t t) const {
    int32_t* out = stored.profiles + static_cast<int64_t>(stored.profile_count++) * s_.tiles;
    for (int32_t k = 0; k < s_.tiles; ++k) out[k] = sweep.exponent[k];
    put_profile(stored, t);
  }

  // Where y of frame t lies. A ring's rows are made all at once, of those that this half needs, so
  // that two threads never write the same row_sum.
  int64_t row(int32_t t) {
    if (s_.ring == 0) return t;
    const int32_t slot = up_ ? 0 : s_.ring;
    const int32_t from = t - t % s_.ring;
    if (side_.rows_from != from) {
      const int32_t first = t <= middle_ ? 0 : middle_ + 1;
      const int32_t last = t <= middle_ ? middle_ + 1 : s_.frames;
      ctc_rows(s_, dtype_, from > first ? from : first,
               from + s_.ring < last ? from + s_.ring : last, slot);
      side_.rows_from = from;
    }
    return slot + t % s_.ring;
  }
  const Real* y(int64_t at) const { return static_cast<const Real*>(s_.y) + at * s_.padded; }
  double y_blank(int64_t at) const {
    return static_cast<double>(static_cast<const Real*>(s_.y_blank)[at]);
  }

  // Each frame's normaliser is counted once, by the direction that comes to the frame first.
  void count_normaliser(int32_t t) {
    const auto sum = static_cast<double>(static_cast<const Real*>(s_.row_sum)[t]);
    if (!(sum < __builtin_inf())) side_.not_a_number = true;
    if (s_.input != CtcInput::logits) {
      side_.shifts += static_cast<double>(static_cast<const Real*>(s_.row_max)[t]);
      return;
    }
    side_.fraction *= sum;
    const int32_t e = exponent_of(side_.fraction);
    side_.exponent += e;
    side_.fraction *= power_of_two(-e);
  }

  // alpha at frame 0, beta at the last frame.
  void start() {
    steps_.reset();
    side_.stored.profile_count = 0;
    side_.rows_from = -1;
    side_.fraction = 1;
    side_.exponent = 0;
    side_.shifts = 0;
    side_.not_a_number = false;
    const int32_t t = up_ ? 0 : s_.frames - 1;
    side_.frame = t;
    side_.column = s_.kept && keeps(t) ? column_of(side_.stored, t) : side_.scratch;
    side_.in_range = true;
    if (up_) {
      const int64_t at = row(0);
      count_normaliser(0);
      side_.in_range = steps_.begin_alpha(side_.column, y(at), y_blank(at), s_.drop[at]);
    } else {
      steps_.begin_beta(side_.column);
    }
    if (!keeps(t)) return;
    if (s_.kept) push_profile(side_.stored, side_.sweep, t);
    if (!s_.kept) keep_head(t);
  }

  // The next column, into the memory of stored ones or into scratch memory.
  void advance(bool count, bool store_it) {
    const int32_t t = next_frame(), source = up_ ? t : t + 1;
    const int64_t at = row(source);
    last_drop_ = s_.drop[at];
    if (count) count_normaliser(source);
    double* other = side_.scratch + (side_.column == side_.scratch ? column_size_ : 0);
    double* to = s_.kept && store_it ? column_of(side_.stored, t) : other;
    const Room room = steps_.make_room(side_.column, side_.frame, last_drop_);
    side_.in_range = room != Room::none;
    if (!side_.in_range) return;
    if (room == Room::made) {
      side_.factor_of = -1;
      if (s_.kept && keeps(side_.frame) && count)
        push_profile(side_.stored, side_.sweep, side_.frame);
    }
    steps_.step(side_.column, to, t, y(at), y_blank(at));
    side_.column = to;
    side_.frame = t;
    if (!store_it) return;
    if (s_.kept) put_profile(side_.stored, t);
    if (!s_.kept) keep_head(t);
  }

  // The first column of each segment in the direction, as it is before it is scaled anew.
  void keep_head(int32_t t) {
    const int32_t segment = t / s_.ring;
    if (up_ ? t % s_.ring != 0 : t % s_.ring != s_.ring - 1 && t != s_.frames - 1) return;
    const int32_t i = up_ ? segment : segment - middle_ / s_.ring;
    copy_column(side_.column, side_.stored.head_columns + i * column_size_, column_size_);
    int32_t* exponents = side_.stored.head_exponents + static_cast<int64_t>(i) * s_.tiles;
    for (int32_t k = 0; k < s_.tiles; ++k) exponents[k] = side_.sweep.exponent[k];
    side_.stored.heads[i] = {side_.sweep.bits, side_.sweep.frames, side_.sweep.limit};
  }

  // The last column that beta has stored is read by alpha's second half, while beta's would scale
  // it anew.
  void leave_stored() {
    if (side_.column == side_.scratch || side_.column == side_.scratch + column_size_) return;
    copy_column(side_.column, side_.scratch, column_size_);
    side_.column = side_.scratch;
  }

  bool whole(PosteriorSums<Real>& sums) {
    if (up_ && !posterior(sums)) return false;
    while (next_frame() >= 0 && next_frame() < s_.frames) {
      advance(false, false);
      if (!side_.in_range || !posterior(sums)) return false;
    }
    return true;
  }

  bool in_segments(PosteriorSums<Real>& sums) {
    const int32_t first = up_ ? middle_ : middle_ - 1, last = up_ ? s_.frames - 1 : 0;
    if (first < 0) return true;
    const int32_t step = up_ ? 1 : -1;
    for (int32_t segment = first / s_.ring; segment != last / s_.ring + step; segment += step) {
      const int32_t begin = segment * s_.ring > middle_ || !up_ ? segment * s_.ring : middle_;
      const int32_t after = up_ ? s_.frames : middle_;
      const int32_t end = (segment + 1) * s_.ring < after ? (segment + 1) * s_.ring : after;
      // Into the segment first, by a row that beta finds in the segment before.
      const bool comes_in = !up_ || begin > middle_;
      if (comes_in) advance(false, false);
      if (!side_.in_range) return false;
      make_again(begin, end, comes_in);
      if (!posterior(sums)) return false;
      while (up_ ? side_.frame + 1 < end : side_.frame > begin) {
        advance(false, false);
        if (!side_.in_range || !posterior(sums)) return false;
      }
    }
    return true;
  }

  // The other direction's columns of frames begin to end, from the head that it has left there,
  // with the same bits. `and_leave`: the last of them is scaled anew if that direction did so when
  // it went on, by the row that this direction has come in by.
  void make_again(int32_t begin, int32_t end, bool and_leave) {
    CtcStored& stored = s_.side[!up_].stored;
    const int32_t i = begin / s_.ring - (up_ ? middle_ / s_.ring : 0);
    int32_t t = up_ ? end - 1 : begin;
    copy_column(stored.head_columns + i * column_size_, column_of(stored, t), column_size_);
    again_.go_back_to(stored.heads[i], stored.head_exponents + static_cast<int64_t>(i) * s_.tiles);
    side_.factor_of = -1;
    stored.profile_count = 0;
    push_profile(stored, side_.again, t);
    const auto make_room = [&](int32_t drop) {
      if (again_.make_room(column_of(stored, t), t, drop) == Room::made)
        push_profile(stored, side_.again, t);
    };
    while (up_ ? t > begin : t + 1 < end) {
      const int32_t next = up_ ? t - 1 : t + 1;
      const int64_t at = row(up_ ? t : next);
      make_room(s_.drop[at]);
      again_.step(column_of(stored, t), column_of(stored, next), next, y(at), y_blank(at));
      put_profile(stored, next);
      t = next;
    }
    if (and_leave) make_room(last_drop_);
  }

  // What turns alpha * beta of tile k into posteriors. One that large can only come from products
  // near the end of the range: infinity then makes the frame's sum miss 1.
  void set_factors(const CtcStored& other) {
    const int32_t index = other.profile_of[place(side_.frame)];
    if (side_.factor_of == index) return;
    side_.factor_of = index;
    const int32_t* theirs = other.profiles + static_cast<int64_t>(index) * s_.tiles;
    for (int32_t k = 0; k < s_.tiles; ++k) {
      const int64_t e = static_cast<int64_t>(side_.sweep.exponent[k]) + theirs[k] - s_.z_exponent;
      side_.factor[k] = e > posterior_limit ? __builtin_inf()
                        : e < -1022         ? 0
                                            : power_of_two(static_cast<int32_t>(e)) / s_.z;
    }
  }

  // Of the current frame. False: they do not add up to 1.
  bool posterior(PosteriorSums<Real>& sums) {
    const int32_t t = side_.frame, first = s_.first_tile[t], last = s_.last_tile[t];
    const CtcStored& other = s_.side[!up_].stored;
    const double* mine = side_.column;
    const double* theirs = column_of(other, t);
    set_factors(other);
    Real* row = sums.row();
    vd blanks = {}, labels = {};
    for (int32_t i = 0; i < first * ctc_tile; i += WD) store_narrow(row + i, vd{});
    for (int32_t k = first; k <= last; ++k) {
      const double* a = mine + k * ctc_column_tile;
      const double* b = theirs + k * ctc_column_tile;
      const vd f = broadcast(side_.factor[k]);
      for (int j = 0; j < parts; ++j) {
        blanks += load(a + j * WD) * load(b + j * WD) * f;
        const vd p = load(a + ctc_tile + j * WD) * load(b + ctc_tile + j * WD) * f;
        labels += p;
        store_narrow(row + k * ctc_tile + j * WD, p);
      }
    }
    for (int32_t i = (last + 1) * ctc_tile; i < s_.padded; i += WD) store_narrow(row + i, vd{});
    const double blank = sum_lanes<double>(blanks);
    const double off = blank + sum_lanes<double>(labels) - 1;
    sums.finish_row(t, blank);
    const double allowed = agreement_per_frame * s_.frames;
    return off < allowed && off > -allowed;
  }

  CtcSequence& s_;
  const DType dtype_;
  const bool up_;
  const int32_t middle_;
  const int64_t column_size_;
  CtcSide& side_;
  ScaledSteps<Real> steps_, again_;
  int32_t last_drop_ = 0;  // of the row of the last step
};

// Where both have come to the middle: Z is the columns' inner product.
CtcLoss meet(CtcSequence& s) {
  const CtcSide &alpha = s.side[1], &beta = s.side[0];
  if (!alpha.in_range || !beta.in_range) return {0, CtcLoss::out_of_range};
  if (alpha.not_a_number || beta.not_a_number) return {0, CtcLoss::not_a_number};
  const int32_t middle = s.frames / 2;
  int64_t top = INT64_MIN;
  for (int pass = 0; pass < 2; ++pass) {
    s.z = 0;
    for (int32_t k = s.first_tile[middle]; k <= s.last_tile[middle]; ++k) {
      vd sum = {};
      for (int i = 0; i < ctc_column_tile; i += WD) {
        const int64_t at = static_cast<int64_t>(k) * ctc_column_tile + i;
        sum += load(alpha.column + at) * load(beta.column + at);
      }
      const double product = sum_lanes<double>(sum);
      if (!(product > 0)) continue;
      const int64_t e = static_cast<int64_t>(alpha.sweep.exponent[k]) + beta.sweep.exponent[k];
      if (pass == 0) {
        if (e + exponent_of(product) > top) top = e + exponent_of(product);
      } else if (const int64_t shift = e + exponent_of(product) - top; shift > -200) {
        s.z += product * power_of_two(-exponent_of(product)) *
               power_of_two(static_cast<int32_t>(shift));
      }
    }
    if (top == INT64_MIN) return {0, CtcLoss::out_of_range};
  }
  s.z_exponent = top;
  double loss = -(::log(s.z) + static_cast<double>(top) * ln2);
  for (const CtcSide& side : s.side)
    loss += ::log(side.fraction) + static_cast<double>(side.exponent) * ln2 - side.shifts;
  return {loss, CtcLoss::finite};
}

template <class F>
auto visit_real(DType dtype, const F& f) {
  return dtype == DType::f64 ? f(double{}) : f(float{});
}

// Both directions in turn, with what is too small treated alike in both.
CtcLoss clipped(CtcSequence& s, DType dtype, Clip clip) {
  visit_real(dtype, [&]<class Real>(Real) {
    Half<Real>(s, dtype, true, clip, clip).first();
    Half<Real>(s, dtype, false, clip, clip).first();
  });
  return meet(s);
}

}  // namespace

CtcLoss ctc_lattice_loss(CtcSequence& s, DType dtype) {
  const CtcLoss above = clipped(s, dtype, Clip::up);
  if (above.kind != CtcLoss::finite || !(s.side[0].sweep.clipped || s.side[1].sweep.clipped))
    return above;
  const CtcLoss below = clipped(s, dtype, Clip::down);
  if (below.kind != CtcLoss::finite) return below;
  const double apart = below.value - above.value, allowed = agreement_per_frame * s.frames;
  return apart <= allowed && apart >= -allowed ? above : CtcLoss{0, CtcLoss::out_of_range};
}

void ctc_lattice_first_half(CtcSequence& s, DType dtype, bool up) {
  visit_real(dtype,
             [&]<class Real>(Real) { Half<Real>(s, dtype, up, Clip::up, Clip::down).first(); });
}

CtcLoss ctc_lattice_meet(CtcSequence& s, DType) { return meet(s); }

void ctc_lattice_second_half(CtcSequence& s, DType dtype, bool up) {
  visit_real(dtype,
             [&]<class Real>(Real) { Half<Real>(s, dtype, up, Clip::up, Clip::down).second(); });
}

}  // namespace rondo::RONDO_ISA
