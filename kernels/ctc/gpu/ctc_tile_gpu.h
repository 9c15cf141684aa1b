// The states that a warp of the fast lattice holds in registers, and one step of either direction.
// For the *.cu files of kernels/ctc alone.
//
// Lane k of warp w holds `P` pairs: pair i is blank i and label i after it; the blank after the
// last label is that of pair L. A value v of a lane stands for v * 2^exponent. Both directions
// include the emission of their own frame: alpha_t(s) as usual, beta_t(s) = y_t(s) * (its usual
// value), so that with u = the sum over predecessors, before the emission, of one direction,
// u_t(s) times the other's stored value is the posterior of s at t.
//
// Range, for f32. Scales are set again every `chunk` frames, from each lane's largest state that
// lies on a complete alignment, which becomes 2^lift, or less if it has sunk by more than one power
// of two makes good; others are cleared. What comes in from the lane before is scaled by `carry`, a
// power of two. A lane must not be scaled so low that what comes in overflows. In F frames a value
// grows by 3^F at most, for a state has three predecessors and emissions are at most 1, and it
// enters 1 + (F - 1) / P lanes, for it may begin at the border of its own. Each lane's scale is at
// least 2^-slope of what each of so many lanes before it would have for itself alone, and so
//
//     lift + slope * (1 + (chunk - 1) / P) + log2(2 * 3^chunk) < 128.
//
// In between values may sink. alpha then is kept above 2^-126 of its lane's scale (the floor, added
// in every step, for nothing: the product with the emission is a fused multiply-add); beta may
// vanish. So alpha is never too small and beta never too large: the sum over the states of alpha *
// beta is at least Z at the last frame and at most Z at the first. If it is the same at all frames,
// what was lost or added did not matter, for the posteriors neither (what beta lost in all is Z
// minus the first sum; what alpha gained is the last sum minus Z). If not, or if anything
// overflowed (NaN), the sequence is left to log space.
//
// An emission of less than 2^-126 is 0 or has lost bits, for both directions: alpha could be too
// small. Times values below 2^128 it is less than the floor if it is below 2^-254. Sequences with
// emissions between are left to log space before they begin (is_faint()).
//
// Floors flow as well, from the frame after the one they are added in, and also into lanes that no
// value reaches within the chunk. There scales may differ by more than `slope` bits from lane to
// lane, but by `steepest` at most, and
//
//     -126 + steepest * (1 + (chunk - 2) / P) + log2(2 * 3^chunk) < 128.
//
// With 100 bits and a pair per lane, a floor would become 2^-26, 2^74 and 2^174 in the lanes after
// its own. But the steeper the better: far ahead of an alignment, floors are as low as scales.
#pragma once

#include "kernels/ctc/gpu/ctc_device.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int no_exponent = -(1 << 28);
constexpr int floor_bits = 126;
constexpr float alpha_floor = 0x1p-126f;

__device__ inline int clamped(int x, int low, int high) {
  return x < low ? low : x > high ? high : x;
}
// n from -126 to 127.
__device__ inline float power_of_two(int n) { return __builtin_bit_cast(float, (n + 127) << 23); }
__device__ inline int exponent_of(float x) {
  return static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 23 & 0xff) - 127;
}
__device__ inline bool has_exponent(int e) { return e > no_exponent / 2; }

__device__ inline int product_exponent(float x, int x_scale, float y, int y_scale) {
  if (!(x > 0 && y > 0)) return no_exponent;
  return exponent_of(x) + x_scale + exponent_of(y) + y_scale;
}

template <int P>
struct TileShape {
  static constexpr int chunk = ctc_chunk_frames(P);  // frames between two scalings
  static constexpr int lanes_back = 1 + (chunk - 1) / P;
  static constexpr int floor_lanes = 1 + (chunk - 2) / P;
  // log2(2 * 3^chunk), rounded up: log2(3) is below 1.586.
  static constexpr int growth = 1 + (chunk * 1586 + 999) / 1000;
  // As good as any from 28 to half of what there is; `slope` gets the rest.
  static constexpr int lift = P == 2 ? 32 : 28;
  static constexpr int slope = (127 - growth - lift) / lanes_back;
  static constexpr int steepest = (127 + floor_bits - growth) / floor_lanes;
  static_assert(lift + slope * lanes_back + growth < 128);
  static_assert(-floor_bits + steepest * floor_lanes + growth < 128);
  static_assert(slope > 0 && slope <= steepest);
  static_assert(128 + floor_bits <= lost_bits);
  static_assert(steepest < 128);  // a power of two, as a float
};

// What comes into a warp's first lane, in the direction of the flow, from the warp before.
struct Inflow {
  int exponent = no_exponent;  // of the lane before
  int top = no_exponent;       // of the largest value that will come in during the chunk
};

template <bool up>
__device__ bool is_first() {
  return threadIdx.x % 32 == (up ? 0 : 31);
}
// The value of the lane that many before; a lane's own where there is none.
template <bool up>
__device__ int from_lane(int value, int lanes) {
  return up ? __shfl_up_sync(all_lanes, value, static_cast<unsigned>(lanes))
            : __shfl_down_sync(all_lanes, value, static_cast<unsigned>(lanes));
}
template <int P, bool up>
__device__ int from_before(int value, int lanes, int otherwise) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int other = from_lane<up>(value, lanes);
  return (up ? lane >= lanes : lane < 32 - lanes) ? other : otherwise;
}

template <int P>
struct Sums {
  float b[P], l[P];
};

// When the states of a lane lie on complete alignments. Of pair j: label `label` is reached at
// frame `reached` at the earliest, after label - 1 a frame earlier unless it repeats that (1);
// there are `slack` frames to spare. The states that walks begin with, a frame before the first or
// after the last, count as well. `compact`: fewer registers, more instructions.
template <int P, bool compact>
struct Windows {
  int label_from[P] = {}, blank_from[P] = {};
  unsigned label_frames[P] = {}, blank_frames[P] = {};

  __device__ void set(int j, int label, int labels, int reached, int repeat, int slack) {
    label_from[j] = reached;
    label_frames[j] = label < labels ? static_cast<unsigned>(slack) + 1 : 0;
    const int first = label == 0 ? 1 : 0, last = label == labels ? 1 : 0;
    blank_from[j] = reached - repeat - first;
    blank_frames[j] = label <= labels ? static_cast<unsigned>(slack + repeat + first + last) : 0;
  }
  __device__ void clear(int now, float (&b)[P], float (&l)[P]) const {
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      l[j] = static_cast<unsigned>(now - label_from[j]) < label_frames[j] ? l[j] : 0;
      b[j] = static_cast<unsigned>(now - blank_from[j]) < blank_frames[j] ? b[j] : 0;
    }
  }
};
template <int P>
struct Windows<P, true> {
  unsigned repeats = 0;  // bit j: the label of pair j equals the one before
  int reach = 0;         // of pair 0, without its own bit
  int left = 0;          // labels from pair 0 on; negative: none
  int slack = 0;

  __device__ void set(int j, int label, int label_count, int reached, int repeat, int frames) {
    if (j == 0) {
      reach = reached - repeat;
      left = label_count - label;
      slack = frames;
    }
    repeats |= static_cast<unsigned>(repeat) << j;
  }
  __device__ void clear(int now, float (&b)[P], float (&l)[P]) const {
    if (now < 0) return;
    int reached = reach;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int repeat = static_cast<int>(repeats >> j & 1);
      reached += repeat;
      const int since = now - reached, after = j == left ? 1 : 0;
      if (!(j < left && since >= 0 && since <= slack)) l[j] = 0;
      if (!(j <= left && since + repeat >= 0 && since < slack + after)) b[j] = 0;
      ++reached;
    }
  }
};

template <int P, bool compact>
struct Tile {
  float b[P], l[P];  // blanks and labels
  float skip[P];     // alpha: from label i - 1 to label i; beta: from label i to label i + 1
  float carry = 0, floor = 0;
  int exponent = 0;
  Windows<P, compact> windows;

  // The sums over predecessors: `in_b` and `in_l` are the last lane's nearest pair, unscaled.
  template <bool up>
  __device__ Sums<P> sums(float in_b, float in_l) const {
    Sums<P> u;
    float near_b = in_b * carry, near_l = in_l * carry;
    if constexpr (up) {
      RONDO_UNROLL(P)
      for (int j = 0; j < P; ++j) {
        u.b[j] = b[j] + near_l;
        u.l[j] = (l[j] + b[j]) + skip[j] * near_l;
        near_l = l[j];
      }
    } else {
      RONDO_UNROLL(P)
      for (int j = P - 1; j >= 0; --j) {
        u.b[j] = b[j] + l[j];
        u.l[j] = (l[j] + near_b) + skip[j] * near_l;
        near_b = b[j];
        near_l = l[j];
      }
    }
    return u;
  }

  template <bool up>
  __device__ void emit(const Sums<P>& u, const float (&y)[P], float y_blank) {
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      b[j] = up ? fmaf(u.b[j], y_blank, floor) : u.b[j] * y_blank;
      l[j] = up ? fmaf(u.l[j], y[j], floor) : u.l[j] * y[j];
    }
  }

  // Clears the states that are on no complete alignment at frame `now`.
  __device__ void clear(int now) { windows.clear(now, b, l); }

  // Sets the scales. Of the states, those left by clear() count.
  template <bool up>
  __device__ void scale(const Inflow& in) {
    float top = 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) top = fmaxf(top, fmaxf(b[j], l[j]));
    constexpr int lift = TileShape<P>::lift, steepest = TileShape<P>::steepest;
    // No further than the factor goes: alpha would be too small, and nothing would tell.
    int own = top > 0 ? exponent + larger(exponent_of(top) - lift, -127) : no_exponent;
    if (is_first<up>()) {
      own = larger(own, in.top - lift - TileShape<P>::slope);
      own = larger(own, in.exponent - steepest);
    }
    int before = look_back<up>(own, in.exponent);
    const bool steep = has_exponent(own) && has_exponent(before) && before - own > steepest;
    if (__any_sync(all_lanes, steep)) {
      for (int d = 1; d < 32; d *= 2) {
        own = larger(own, from_before<P, up>(own, d, no_exponent) - steepest * d);
      }
      before = from_before<P, up>(own, 1, in.exponent);
    }
    apply<up>(has_exponent(own) ? own : no_exponent, before);
  }

 private:
  // Raises `own` to what the lanes before ask for, and returns what the next of them gets.
  template <bool up>
  __device__ int look_back(int& own, int otherwise) const {
    constexpr int reach = TileShape<P>::lanes_back, slope = TileShape<P>::slope;
    if constexpr (compact) {
      for (int d = 1; d <= reach; d *= 2) {
        own = larger(own, from_before<P, up>(own, d, no_exponent) - slope * d);
      }
      return from_before<P, up>(own, 1, otherwise);
    } else {
      // All exchanges at once: one after the other they would be most of a chunk's head.
      int ahead[reach + 1];
      RONDO_UNROLL(8)
      for (int d = 1; d <= reach + 1; ++d) ahead[d - 1] = from_before<P, up>(own, d, no_exponent);
      int before = ahead[0];
      RONDO_UNROLL(8)
      for (int d = 1; d <= reach; ++d) {
        own = larger(own, ahead[d - 1] - slope * d);
        before = larger(before, ahead[d] - slope * d);
      }
      return is_first<up>() ? otherwise : before;
    }
  }
  // Too small a power of two is rounded up for alpha, down for beta.
  template <bool up>
  static __device__ float ratio(int bits) {
    const float power = power_of_two(clamped(bits, -126, 127));
    return !up && bits < -126 ? 0 : power;
  }
  template <bool up>
  __device__ void apply(int own, int before) {
    const bool alive = has_exponent(own);
    float factor = ratio<up>(exponent - own);
    carry = ratio<up>(before - own);
    factor = alive ? factor : 0;
    carry = alive && has_exponent(before) ? carry : 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      b[j] *= factor;
      l[j] *= factor;
    }
    floor = up && alive ? alpha_floor : 0;
    exponent = own;
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
