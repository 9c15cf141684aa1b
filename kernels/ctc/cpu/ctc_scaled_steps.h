// One direction of the lattice in linear space: a step of alpha upwards or of beta downwards, in
// f64 with a power of two per tile of 8 labels. Included by ctc_lattice_simd.cc alone, whose head
// tells why that is safe.
#pragma once

#include "kernels/ctc/cpu/ctc_simd.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int parts = ctc_tile / WD;  // vectors per half tile
constexpr int32_t decay_budget = 400, growth_budget = 400, steepest = 400;
constexpr double smallest = 0x1p-500;

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

// What becomes of values below `smallest`.
enum class Clip : uint8_t { up, down };

// What make_room() did.
enum class Room : uint8_t { none, enough, made };

template <class Real>
class ScaledSteps {
 public:
  // `up`: alpha; otherwise beta. The scales are in `sweep`, which outlives this.
  ScaledSteps(const CtcSequence& s, CtcSweep& sweep, bool up, Clip clip)
      : s_(s), sweep_(sweep), up_(up), clip_(clip) {}

  const CtcSweep& scales() const { return sweep_; }

  // All scales 2^0.
  void reset() {
    for (int32_t k = 0; k < s_.tiles; ++k) sweep_.exponent[k] = 0;
    sweep_.bits = sweep_.frames = 0;
    sweep_.limit = 64;
    sweep_.clipped = false;
    set_all_seams();
  }

  // The scales as they were at the head of a segment.
  void go_back_to(const CtcHead& head, const int32_t* exponents) {
    for (int32_t k = 0; k < s_.tiles; ++k) sweep_.exponent[k] = exponents[k];
    sweep_.bits = head.bits;
    sweep_.frames = head.frames;
    sweep_.limit = head.limit;
    set_all_seams();
  }

  // alpha at frame 0; false if that is out of range.
  bool begin_alpha(double* to, const Real* y, double y_blank, int32_t drop) {
    clear_tile(to, 0);
    to[0] = y_blank;
    to[ctc_tile] = static_cast<double>(y[0]);
    sweep_.bits = drop;
    sweep_.frames = 1;
    return drop <= decay_budget;
  }

  // beta at the last frame.
  void begin_beta(double* to) const {
    for (int32_t k = range(s_.frames - 1).first; k <= range(s_.frames - 1).last; ++k)
      clear_tile(to, k);
    const int32_t end = s_.label_count;
    const auto blank = [](int32_t i) { return i / ctc_tile * ctc_column_tile + i % ctc_tile; };
    to[blank(end)] = 1;
    if (end > 0) to[blank(end - 1) + ctc_tile] = 1;
  }

  // Scales the column of frame t anew if the coming frame could take it out of range.
  Room make_room(double* column, int32_t t, int32_t drop) {
    if (drop > decay_budget) return Room::none;
    Room room = Room::enough;
    if (sweep_.bits + drop > decay_budget || sweep_.frames >= sweep_.limit) {
      renormalise(column, t);
      room = Room::made;
    }
    sweep_.bits += drop;
    ++sweep_.frames;
    return room;
  }

  // The column of frame t, from that of the frame before it in the direction.
  void step(double* from, double* to, int32_t t, const Real* y, double y_blank) {
    if (up_) {
      if (range(t).last > range(t - 1).last) clear_tile(from, range(t).last);
      alpha_step(from, to, t, y, y_blank);
    } else {
      if (range(t).first < range(t + 1).first) clear_tile(from, range(t).first);
      beta_step(from, to, t, y, y_blank);
    }
  }

 private:
  struct Range {
    int32_t first, last;
  };
  Range range(int32_t t) const { return {s_.first_tile[t], s_.last_tile[t]}; }

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
        store(out + j * WD, (left * load(sweep_.carry + at) + b) * yb);
        store(out + ctc_tile + j * WD,
              (left * load(sweep_.skip + at) + (l + b)) * load_wide(y + at));
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
        store(out + ctc_tile + j * WD, l + shift_out(b, after_b) * load(sweep_.carry + at) +
                                           shift_out(l, after_l) * load(sweep_.skip + at));
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

  void scale_tile(double* column, int32_t k, int32_t t, double scale) const {
    const vd instead = broadcast(clip_ == Clip::up ? smallest : 0.0);
    for (int32_t i = k * ctc_column_tile; i < (k + 1) * ctc_column_tile; i += WD) {
      const vd v = load(column + i) * scale;
      store(column + i, select(counting(i, t), select(v < smallest, instead, v), vd{}));
    }
  }

  // Sets each tile's power of two by its largest value, in the direction of the flow, since a tile
  // must not be scaled so low that what comes in overflows.
  void renormalise(double* column, int32_t t) {
    const Range r = range(t);
    const int32_t step = up_ ? 1 : -1, begin = up_ ? r.first : r.last, end = up_ ? r.last : r.first;
    int32_t slope = 0;
    for (int32_t k = begin; k != end + step; k += step) {
      const Extremes e = extremes_of_tile(column, k, t);
      const int32_t old = sweep_.exponent[k];
      const bool has_source = k != begin;
      const int32_t source = has_source ? sweep_.exponent[k - step] : old;
      int32_t exponent = source;
      if (e.largest > 0) {
        exponent = old + exponent_of(e.largest) + 1;
        if (has_source && exponent < source - steepest) exponent = source - steepest;
      }
      sweep_.exponent[k] = exponent;
      if (source - exponent > slope && has_source) slope = source - exponent;
      const double scale = power_of_two(clamp(old - exponent, -1022, 1023));
      scale_tile(column, k, t, scale);
      if (!(e.least * scale >= smallest)) sweep_.clipped = true;
    }
    // Tiles not reached yet take the last scale.
    for (int32_t k = end + step; k >= 0 && k < s_.tiles; k += step) {
      sweep_.exponent[k] = sweep_.exponent[end];
    }
    set_seams(begin);
    sweep_.bits = sweep_.frames = 0;
    // A value crosses the first seam at once and each further one 8 frames later.
    sweep_.limit = slope * 8 > growth_budget ? 1 + 8 * (growth_budget - slope) / slope : 64;
  }

  void set_all_seams() {
    const int32_t next = up_ ? 0 : 1;
    for (int32_t i = 0; i < s_.padded; ++i) {
      sweep_.carry[i] = 1;
      sweep_.skip[i] = s_.may_skip[i + next];
    }
    set_seams(up_ ? 0 : s_.tiles - 1);
  }

  // The ratios of neighbours' scales, from tile `begin` on in the direction. Nothing comes into
  // `begin` itself any more.
  void set_seams(int32_t begin) {
    const int32_t step = up_ ? 1 : -1;
    for (int32_t k = begin + step; k >= 0 && k < s_.tiles; k += step) {
      const int32_t change = sweep_.exponent[k - step] - sweep_.exponent[k];
      double ratio = power_of_two(clamp(change, -1022, 1023));
      if (change < -1022 && clip_ == Clip::down) ratio = 0;
      const int32_t seam = k * ctc_tile + (up_ ? 0 : ctc_tile - 1);
      sweep_.carry[seam] = ratio;
      // For beta, position i goes on to i + 1, which is where may_skip has its entry.
      sweep_.skip[seam] = s_.may_skip[up_ ? seam : seam + 1] * ratio;
    }
  }

  const CtcSequence& s_;
  CtcSweep& sweep_;
  const bool up_;
  const Clip clip_;
};

}  // namespace
}  // namespace rondo::RONDO_ISA
