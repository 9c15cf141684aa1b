// The fast lattice: one block per sequence, half of its warps run alpha from the first frame up,
// half beta from the last frame down; each stores its columns until they have met in the middle,
// then goes on through what the other has stored, and posteriors fall out. T + O(1) dependent
// steps. A warp needs its neighbour's last state of every frame: warps of one direction lie one
// chunk of frames behind each other, so that a barrier per chunk is enough (none where there is one
// warp per direction). Range and tiles:
// ctc_tile_gpu.h; one warp: ctc_walker_gpu.h. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/ctc_walker_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- one block ----

template <int P, int warps, class Emissions>
struct Lattice {
  using W = Walker<P, warps, Emissions>;
  using Shared = LatticeShared<warps>;
  const LatticeArgs<Emissions>& a;
  Shared& s;
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

  __device__ void finish(float loss, CtcState state) const {
    if (threadIdx.x == 0) {
      a.loss[n] = loss;
      a.work.state[n] = state;
    }
  }

  __device__ void run() {
    const int needed = needed_frames();
    if (frames < needed || frames == 0) {
      finish(frames < needed ? a.impossible_loss : 0, CtcState::no_gradient);
      return;
    }
    const int tile_warps = static_cast<int>(blockDim.x) / 64;
    const int index = static_cast<int>(threadIdx.x) / 32;
    const bool up = index < tile_warps;
    W w(a, s, n, frames, labels, tile_warps, up ? index : index - tile_warps);
    up ? w.template start<true>(needed) : w.template start<false>(needed);
    if constexpr (std::is_same_v<Emissions, StoredEmissions>) {
      with_gradient(w, up, tile_warps);
    } else {
      loss_only(w, up);
    }
  }

 private:
  static __device__ int chunks_of(int count) {
    return (count + W::chunk_frames - 1) / W::chunk_frames;
  }

  __device__ void with_gradient(W& w, bool up, int tile_warps) {
    const int middle = frames / 2, rest = frames - middle;
    up ? w.template prime<true, Phase::store>(0, middle)
       : w.template prime<false, Phase::store>(frames - 1, rest);
    w.template run<Phase::store>(up, chunks_of(rest));
    const int z = exponent_of_z(w, up, tile_warps, middle);
    w.z_exponent = z;
    up ? w.template prime<true, Phase::posteriors>(middle, rest)
       : w.template prime<false, Phase::posteriors>(middle - 1, middle);
    w.template run<Phase::posteriors>(up, chunks_of(rest));
    __syncthreads();
    close(z, tile_warps);
  }

  __device__ int exponent_of_z(W& w, bool up, int tile_warps, int middle) {
    if constexpr (W::wide) {
      if (up) w.template write_seam<true>(s.seam[0][w.warp][0], 0);
    }
    __syncthreads();
    if (up) {
      const Seam* in = W::wide && w.warp > 0 ? &s.seam[0][w.warp - 1][0] : nullptr;
      const int top = w.meet(a.layout.row_offsets[middle] + n, in);
      if (w.lane == 0) s.top[w.warp] = top;
    }
    __syncthreads();
    int z = no_exponent;
    for (int i = 0; i < tile_warps; ++i) z = larger(z, s.top[i]);
    return z;
  }

  // Sums over the warps, their agreement, the loss.
  __device__ void close(int z, int tile_warps) {
    float low = INFINITY, high = 0;
    double logs = 0;
    int bad = has_exponent(z) ? 0 : 1;
    for (int t = static_cast<int>(threadIdx.x); t < frames; t += static_cast<int>(blockDim.x)) {
      const int64_t row = a.layout.row_offsets[t] + n;
      CtcPartial sum = {0, 0};
      for (int i = 0; i < tile_warps; ++i) {
        const CtcPartial one = a.work.partial[row * a.work.tiling.warps + i];
        sum.blank += one.blank;
        sum.all += one.all;
      }
      a.work.posterior[row] = {sum.blank / sum.all, 1 / sum.all};
      logs += double{a.work.emission[row].log_best};
      low = fminf(low, sum.all);
      high = fmaxf(high, sum.all);
      if (!(sum.all > 0 && sum.all < INFINITY)) bad = 1;
    }
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
    if (bad != 0 || !agree(double{low}, double{high})) {
      finish(0, CtcState::log_space);
      return;
    }
    const double log_z = log((double{low} + double{high}) / 2) + z * 0x1.62e42fefa39efp-1;
    finish(static_cast<float>(-(log_z + logs)), CtcState::fine);
  }

  // Sums may differ by rounding: a few ulps of f32 per frame, in both directions alike.
  __device__ bool agree(double low, double high) const {
    return high - low <= low * 0x1p-24 * (16 + 8 * sqrt(static_cast<double>(frames)));
  }

  // Both directions go through all frames: alpha's end is never too small, beta's never too large.
  __device__ void loss_only(W& w, bool up) {
    up ? w.template prime<true, Phase::alone>(0, frames)
       : w.template prime<false, Phase::alone>(frames - 1, frames);
    w.template run<Phase::alone>(up, chunks_of(frames));
    w.write_end(up);
    double logs = 0;
    for (int t = static_cast<int>(threadIdx.x); t < frames; t += static_cast<int>(blockDim.x)) {
      logs += double{a.work.emission[a.layout.row_offsets[t] + n].log_best};
    }
    for (int d = 16; d > 0; d /= 2) logs += __shfl_xor_sync(all_lanes, logs, d);
    if (threadIdx.x % 32 == 0) s.log_best[threadIdx.x / 32] = logs;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < static_cast<int>(blockDim.x) / 32; ++i) logs += s.log_best[i];
    const int top = larger(s.end[0].exponent[0], s.end[1].exponent[0]);
    const double alpha = total(s.end[0], top), beta = total(s.end[1], top);
    const double low = alpha < beta ? alpha : beta, high = alpha < beta ? beta : alpha;
    if (!(low > 0 && high < INFINITY) || !agree(low, high)) {
      finish(0, CtcState::log_space);
      return;
    }
    const double log_z = log((low + high) / 2) + top * 0x1.62e42fefa39efp-1;
    finish(static_cast<float>(-(log_z + logs)), CtcState::fine);
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

template <int P, int warps, class Emissions>
__global__ void __launch_bounds__(64 * warps, 1) lattice(LatticeArgs<Emissions> a) {
  auto& s = shared<LatticeShared<warps>>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) {
    if (threadIdx.x == 0) {
      a.loss[n] = 0;
      a.work.state[n] = CtcState::no_gradient;
    }
    return;
  }
  const int labels = a.label_offsets[n + 1] - a.label_offsets[n];
  Lattice<P, warps, Emissions>{a, s, n, a.layout.lengths[n], labels}.run();
}

template <class Emissions>
void launch_lattice(const Context& context, const LatticeArgs<Emissions>& a) {
  const auto go = [&]<int warps>(void (*kernel)(LatticeArgs<Emissions>),
                                 std::integral_constant<int, warps>) {
    launch(context,
           {.kernel = "ctc lattice",
            .grid = {static_cast<unsigned>(a.layout.capacity.sequences)},
            .block = {64 * static_cast<unsigned>(a.work.tiling.warps)},
            .shared_bytes = sizeof(LatticeShared<warps>)},
           kernel, a);
  };
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 4> four;
  constexpr std::integral_constant<int, 8> eight;
  static_assert(ctc_tiling(ctc_fast_labels).warps == eight);
  const CtcTiling t = a.work.tiling;
  if (t.pairs == 1) return go(lattice<1, 1, Emissions>, one);
  if (t.pairs == 2) return go(lattice<2, 1, Emissions>, one);
  if (t.warps == 1) return go(lattice<4, 1, Emissions>, one);
  if (t.warps <= four) return go(lattice<4, four, Emissions>, four);
  go(lattice<4, eight, Emissions>, eight);
}

}  // namespace
}  // namespace rondo::RONDO_GPU
