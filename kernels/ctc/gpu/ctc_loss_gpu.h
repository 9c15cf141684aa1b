// How a block ends a sequence of the fast lattice: whether its frames suffice, whether what f32
// lost mattered, and the loss. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_tile_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

struct LossShared {
  float low[32], high[32];  // of each warp
  double log_best[32];
  int bad[32];
  int needed;
};

// The two states where alignments end (alpha) or begin (beta).
struct End {
  float value[2];
  int exponent[2];
};

struct LossArgs {
  PackedView layout;
  const int32_t *labels, *label_offsets;
  float* loss;
  float impossible_loss;
  CtcGpuWorkspace work;
};

// All threads of the block call these.
struct SequenceLoss {
  const LossArgs& a;
  LossShared& s;
  const int32_t n;
  const int frames, labels;

  // The fewest frames the labels need.
  __device__ int needed_frames() const {
    if (threadIdx.x == 0) s.needed = labels;
    __syncthreads();
    const int32_t* label = a.labels + a.label_offsets[n];
    int repeats = 0;
    for (int i = static_cast<int>(threadIdx.x) + 1; i < labels; i += static_cast<int>(blockDim.x)) {
      repeats += label[i] == label[i - 1];
    }
    if (repeats > 0) atomicAdd(&s.needed, repeats);
    __syncthreads();
    return s.needed;
  }

  // Whether the lattice has anything to do; if not, the loss is written.
  __device__ bool begins(int needed) const {
    if (frames >= needed && frames > 0) return true;
    finish(frames < needed ? a.impossible_loss : 0, CtcState::no_gradient);
    return false;
  }

  // Sums of posteriors over the warps, their agreement, the loss. They are in units of 2^z.
  __device__ void from_posteriors(int z, int warps) const {
    float low = INFINITY, high = 0;
    double logs = 0;
    int bad = has_exponent(z) ? 0 : 1;
    for (int t = static_cast<int>(threadIdx.x); t < frames; t += static_cast<int>(blockDim.x)) {
      const int64_t row = a.layout.row_offsets[t] + n;
      CtcPartial sum = {0, 0};
      for (int i = 0; i < warps; ++i) {
        const CtcPartial one = a.work.partial[row * a.work.all_warps + i];
        sum.blank += one.blank;
        sum.all += one.all;
      }
      a.work.posterior[row] = {sum.blank / sum.all, 1 / sum.all};
      logs += double{a.work.emission[row].log_best};
      low = fminf(low, sum.all);
      high = fmaxf(high, sum.all);
      if (!(sum.all > 0 && sum.all < INFINITY)) bad = 1;
    }
    reduce(low, high, logs, bad);
    if (threadIdx.x == 0) decide(double{low}, double{high}, logs, z, bad != 0);
  }

  // What alpha and beta make of all frames: alpha's end is never too small, beta's never too large.
  __device__ void from_ends(const End& alpha_end, const End& beta_end) const {
    float low = 0, high = 0;
    double logs = 0;
    int bad = 0;
    for (int t = static_cast<int>(threadIdx.x); t < frames; t += static_cast<int>(blockDim.x)) {
      const CtcEmission e = a.work.emission[a.layout.row_offsets[t] + n];
      logs += double{e.log_best};
      if (!(e.blank < INFINITY)) bad = 1;
    }
    reduce(low, high, logs, bad);
    if (threadIdx.x != 0) return;
    const int top = larger(alpha_end.exponent[0], beta_end.exponent[0]);
    const double alpha = total(alpha_end, top), beta = total(beta_end, top);
    decide(alpha < beta ? alpha : beta, alpha < beta ? beta : alpha, logs, top, bad != 0);
  }

 private:
  __device__ void finish(float loss, CtcState state) const {
    if (threadIdx.x == 0) {
      a.loss[n] = loss;
      a.work.state[n] = state;
    }
  }

  // Over the block, for its first thread.
  __device__ void reduce(float& low, float& high, double& logs, int& bad) const {
    for (int d = 16; d > 0; d /= 2) {
      low = fminf(low, __shfl_xor_sync(all_lanes, low, d));
      high = fmaxf(high, __shfl_xor_sync(all_lanes, high, d));
      logs += __shfl_xor_sync(all_lanes, logs, d);
      bad |= __shfl_xor_sync(all_lanes, bad, d);
    }
    const int index = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) {
      s.low[index] = low;
      s.high[index] = high;
      s.log_best[index] = logs;
      s.bad[index] = bad;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < static_cast<int>(blockDim.x) / 32; ++i) {
      low = fminf(low, s.low[i]);
      high = fmaxf(high, s.high[i]);
      logs += s.log_best[i];
      bad |= s.bad[i];
    }
  }

  // Z lies between low and high, both in units of 2^exponent.
  __device__ void decide(double low, double high, double logs, int exponent, bool bad) const {
    if (bad || !(low > 0 && high < INFINITY) || !agree(low, high)) {
      finish(0, CtcState::log_space);
      return;
    }
    const double log_z = log((low + high) / 2) + exponent * 0x1.62e42fefa39efp-1;
    finish(static_cast<float>(-(log_z + logs)), CtcState::fine);
  }

  // Sums may differ by rounding: a few ulps of f32 per frame, in both directions alike.
  __device__ bool agree(double low, double high) const {
    return high - low <= low * 0x1p-24 * (16 + 8 * sqrt(static_cast<double>(frames)));
  }

  // The end's sum, times 2^-scale.
  __device__ double total(const End& end, int scale) const {
    double sum = double{end.value[0]} * exp2(static_cast<double>(end.exponent[0] - scale));
    if (labels > 0) {
      sum += double{end.value[1]} * exp2(static_cast<double>(end.exponent[1] - scale));
    }
    return sum;
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
