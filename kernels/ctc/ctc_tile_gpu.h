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
// lies on a complete alignment; others are cleared. What comes in from the lane before is scaled
// by `carry`, a power of two. A lane must not be scaled so low that what comes in overflows: a
// value crosses at most 1 + (chunk - 1) / P lanes until scales are set again, and each lane's scale
// is at least 2^-slope of that of each of so many lanes before it. In between values may sink.
// alpha then is kept above 2^-110 of its lane's scale (added in every step, for nothing: the
// product with the emission is a fused multiply-add); beta may vanish. So alpha is never too small
// and beta never too large: the sum over the states of alpha * beta is at least Z at the last frame
// and at most Z at the first. If it is the same at all frames, what was lost or added did not
// matter, for the posteriors neither (what beta lost in all is Z minus the first sum; what alpha
// gained is the last sum minus Z). If not, or if anything overflowed (NaN), the sequence is left to
// log space.
#pragma once

#include "kernels/ctc/ctc_device.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int no_exponent = -(1 << 28);
constexpr float alpha_floor = 0x1p-110f;
constexpr int steepest = 100;  // bits between neighbouring lanes' scales

__device__ inline int clamped(int x, int low, int high) {
  return x < low ? low : x > high ? high : x;
}
// n from -126 to 127.
__device__ inline float power_of_two(int n) { return __builtin_bit_cast(float, (n + 127) << 23); }
__device__ inline int exponent_of(float x) {
  return static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 23 & 0xff) - 127;
}
__device__ inline bool has_exponent(int e) { return e > no_exponent / 2; }

template <int P>
struct TileShape {
  static constexpr int chunk = ctc_chunk_frames(P);  // frames between two scalings
  static constexpr int scan_steps = P == 1 ? 3 : 2;  // looks 2^steps - 1 lanes back
  static constexpr int slope = P == 1 ? 12 : 28;     // bits per lane looked back
  static_assert(1 + (chunk - 1) / P < 1 << scan_steps);
};

// What comes into a warp's first lane, in the direction of the flow, from the warp before.
struct Inflow {
  int exponent = no_exponent;  // of the lane before
  int top = no_exponent;       // of the largest value that will come in during the chunk
};

template <int P, bool up>
__device__ int from_before(int value, int lanes, int otherwise) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int other = up ? __shfl_up_sync(all_lanes, value, static_cast<unsigned>(lanes))
                       : __shfl_down_sync(all_lanes, value, static_cast<unsigned>(lanes));
  return (up ? lane >= lanes : lane < 32 - lanes) ? other : otherwise;
}

template <int P>
struct Sums {
  float b[P], l[P];
};

template <int P>
struct Tile {
  float b[P], l[P];  // blanks and labels
  float skip[P];     // alpha: from label i - 1 to label i; beta: from label i to label i + 1
  float carry = 0, floor = 0;
  int exponent = 0;
  // When states lie on complete alignments: label i is reached at frame i + (repeats up to i) at
  // the earliest.
  unsigned repeats = 0;  // bit j: the label of pair j equals the one before
  int reach = 0;         // of pair 0, without its own bit
  int labels = 0;        // labels from pair 0 on; 0 or less: none
  int slack = 0;         // frames to spare

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
  __device__ void clear(int now) {
    int reached = reach;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int repeat = static_cast<int>(repeats >> j & 1);
      reached += repeat;
      const int since = now - reached;
      if (!(j < labels && since >= 0 && since <= slack)) l[j] = 0;
      if (!(j <= labels && since + repeat >= 0 && since < slack)) b[j] = 0;
      ++reached;
    }
  }

  // Sets the scales. Of the states, those left by clear() count.
  template <bool up>
  __device__ void scale(const Inflow& in) {
    float top = 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) top = fmaxf(top, fmaxf(b[j], l[j]));
    int own = top > 0 ? exponent + exponent_of(top) : no_exponent;
    if (threadIdx.x % 32 == (up ? 0 : 31)) {
      own = larger(own, in.top - TileShape<P>::slope);
      own = larger(own, in.exponent - steepest);
    }
    RONDO_UNROLL(8)
    for (int d = 1; d < 1 << TileShape<P>::scan_steps; d *= 2) {
      own = larger(own, from_before<P, up>(own, d, no_exponent) - TileShape<P>::slope * d);
    }
    int before = from_before<P, up>(own, 1, in.exponent);
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
  // Too small a power of two is rounded up for alpha, down for beta.
  template <bool up>
  static __device__ float ratio(int bits) {
    return !up && bits < -126 ? 0 : power_of_two(clamped(bits, -126, 127));
  }
  template <bool up>
  __device__ void apply(int own, int before) {
    const bool alive = has_exponent(own);
    const float factor = alive ? ratio<up>(exponent - own) : 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      b[j] *= factor;
      l[j] *= factor;
    }
    carry = alive && has_exponent(before) ? ratio<up>(before - own) : 0;
    floor = up && alive ? alpha_floor : 0;
    exponent = own;
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
