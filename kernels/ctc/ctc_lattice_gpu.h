// The fast lattice: one block per sequence, half of its warps run alpha from the first frame up,
// half beta from the last frame down; each stores its columns until they have met in the middle,
// then goes on through what the other has stored, and posteriors fall out. T + O(1) dependent
// steps. A warp needs its neighbour's last state of every frame: warps of one direction lie one
// chunk of frames behind each other, so that a barrier per chunk is enough (none where there is one
// warp per direction). Range and tiles: ctc_tile_gpu.h. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/ctc_tile_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- where emissions come from ----

template <int P>
struct Ahead {  // what is loaded ahead of a frame
  float y[P];
  float blank, best;
  int64_t row;
};

// Written by prepare(): for the gradient, whose posteriors later take the same place.
struct StoredEmissions {
  const float* y;
  int64_t stride;
  const CtcEmission* rows;

  template <int P>
  struct Columns {};
  template <int P>
  __device__ Columns<P> columns(const int32_t*, int32_t, int32_t) const {
    return {};
  }
  template <int P>
  __device__ void load(Ahead<P>& to, int32_t first, const Columns<P>&) const {
    to.blank = rows[to.row].blank;
    struct alignas(4 * P) Part {
      float at[P];
    };
    Part part = {};
    if (first < stride) part = *reinterpret_cast<const Part*>(y + to.row * stride + first);
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) to.y[j] = part.at[j];
  }
  template <int P>
  __device__ void finish(Ahead<P>&) const {}
};

// Gathered from the logits: nothing of the size of T * L is kept.
template <class T>
struct GatheredEmissions {
  const T* logits;
  int64_t classes;
  const CtcEmission* rows;

  template <int P>
  struct Columns {
    int32_t label[P];  // -1: none
  };
  template <int P>
  __device__ Columns<P> columns(const int32_t* labels, int32_t first, int32_t count) const {
    Columns<P> c;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) c.label[j] = first + j < count ? labels[first + j] : -1;
    return c;
  }
  template <int P>
  __device__ void load(Ahead<P>& to, int32_t, const Columns<P>& c) const {
    const CtcEmission row = rows[to.row];
    to.blank = row.blank;
    to.best = row.best;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      to.y[j] = c.label[j] < 0 ? -INFINITY : to_float(logits[to.row * classes + c.label[j]]);
    }
  }
  template <int P>
  __device__ void finish(Ahead<P>& a) const {
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) a.y[j] = expf(a.y[j] - a.best);
  }
};

// ---- columns in memory ----

// Word j of the lane: pairs of words of a lane are adjacent, and so are the lanes.
template <int P>
struct Stored {
  Sums<P> states;
  int exponent;
};
struct alignas(8) TwoWords {
  float b, l;
};
template <int P>
__device__ void store_column(float* at, const Tile<P>& tile) {
  const unsigned lane = threadIdx.x % 32;
  RONDO_UNROLL(P)
  for (int j = 0; j < P; ++j) {
    reinterpret_cast<TwoWords*>(at)[32 * j + lane] = {tile.b[j], tile.l[j]};
  }
  reinterpret_cast<int*>(at)[64 * P + lane] = tile.exponent;
}
template <int P>
__device__ void load_column(const float* at, Stored<P>& to) {
  const unsigned lane = threadIdx.x % 32;
  RONDO_UNROLL(P)
  for (int j = 0; j < P; ++j) {
    const TwoWords w = reinterpret_cast<const TwoWords*>(at)[32 * j + lane];
    to.states.b[j] = w.b;
    to.states.l[j] = w.l;
  }
  to.exponent = reinterpret_cast<const int*>(at)[64 * P + lane];
}

// ---- shared memory ----

constexpr int most_chunk = 8;

// The nearest states of a warp, before each frame of a chunk, for the next warp.
struct Seam {
  float b[most_chunk], l[most_chunk];
  int exponent, top;
};
struct End {  // the two states where alignments end (alpha) or begin (beta)
  float value[2];
  int exponent[2];
};
template <int warps>
struct LatticeShared {
  Seam seam[2][warps][2];                      // [direction][warp][odd or even chunk]
  CtcPartial sums[2 * warps][most_chunk][33];  // [warp][frame][lane]
  End end[2];
  float low[2 * warps], high[2 * warps];
  double log_best[2 * warps];
  int bad[2 * warps];
  int top[2 * warps];
  int needed;
};

// ---- one warp ----

template <class Emissions>
struct LatticeArgs {
  PackedView layout;
  const int32_t *labels, *label_offsets;
  float* loss;
  float impossible_loss;
  bool with_grad;
  Emissions emissions;
  CtcGpuWorkspace work;
};

enum class Phase : uint8_t {
  store,       // the first half of the frames
  posteriors,  // the second half
  alone,       // all frames, without a gradient
};

template <int P, int warps, class Emissions>
struct Walker {
  using Shared = LatticeShared<warps>;
  static constexpr bool wide = warps > 1;
  static constexpr int chunk_frames = TileShape<P>::chunk;
  // Frames loaded ahead; where there are many warps they hide each other's loads, and registers
  // are short.
  static constexpr int ahead = warps > 4 ? 2 : P == 4 ? 4 : chunk_frames;
  static_assert(chunk_frames % ahead == 0);

  const LatticeArgs<Emissions>& a;
  Shared& s;
  const int64_t n;
  const int frames, labels, tile_warps;
  const int lane, warp;  // warp: the tile's index
  const int first;       // its lane's first pair
  Tile<P> tile;
  typename Emissions::template Columns<P> columns;
  Ahead<P> next[ahead];
  Stored<P> stored[ahead];
  int64_t rows[ahead];  // of the frames after those in `next`
  int begin = 0, count = 0;
  int z_exponent = 0;
  float poison = 0;  // 0, NaN once a row was bad

  __device__ Walker(const LatticeArgs<Emissions>& args, Shared& shared_memory, int64_t sequence,
                    int length, int label_count, int used_warps, int warp_index)
      : a(args),
        s(shared_memory),
        n(sequence),
        frames(length),
        labels(label_count),
        tile_warps(used_warps),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(warp_index),
        first((warp_index * 32 + lane) * P) {}

  template <bool up>
  __device__ void start(int needed) {
    const int32_t* label = a.labels + a.label_offsets[n];
    const auto repeats_at = [&](int i) {
      return i > 0 && i < labels && label[i] == label[i - 1] ? 1 : 0;
    };
    tile.slack = frames - needed;
    tile.labels = labels - first;
    tile.reach = first;
    for (int i = 1; i < smaller(first, labels); ++i) tile.reach += repeats_at(i);
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int i = first + j;
      tile.repeats |= static_cast<unsigned>(repeats_at(i)) << j;
      const int to = up ? i : i + 1;
      tile.skip[j] = to > 0 && to < labels && label[to] != label[to - 1] ? 1.0f : 0.0f;
      tile.b[j] = i == (up ? 0 : labels) ? 1.0f : 0.0f;
      tile.l[j] = 0;
    }
    columns = a.emissions.template columns<P>(label, first, labels);
    tile.template scale<up>({});
  }

  template <bool up>
  __device__ int frame(int k) const {
    return up ? begin + k : begin - k;
  }
  template <bool up>
  __device__ int64_t row_of(int k) const {
    return a.layout.row_offsets[frame<up>(smaller(k, count - 1))] + n;
  }
  __device__ float* column(int64_t row) const {
    return a.work.columns + row * a.work.column_words + warp * 32 * (2 * P + 1);
  }

  template <Phase phase>
  __device__ void load_ahead(int slot, int64_t row) {
    next[slot].row = row;
    a.emissions.load(next[slot], first, columns);
    if constexpr (phase == Phase::posteriors) load_column<P>(column(row), stored[slot]);
  }

  // Begins `frame_count` frames from frame `from` on.
  template <bool up, Phase phase>
  __device__ void prime(int from, int frame_count) {
    begin = from;
    count = frame_count;
    if (count == 0) return;
    RONDO_UNROLL(ahead)
    for (int k = 0; k < ahead; ++k) {
      load_ahead<phase>(k, row_of<up>(k));
      rows[k] = row_of<up>(k + ahead);
    }
  }

  template <bool up>
  __device__ bool is_first() const {
    return up ? warp == 0 : warp == tile_warps - 1;
  }
  template <bool up>
  __device__ Seam& seam(int of, int parity) const {
    return s.seam[up ? 0 : 1][of][parity];
  }

  // The sums over predecessors of the current states, which are those before frame `f` of a chunk.
  template <bool up>
  __device__ Sums<P> sums(const Seam* in, int f) const {
    float in_l = up ? __shfl_up_sync(all_lanes, tile.l[P - 1], 1)
                    : __shfl_down_sync(all_lanes, tile.l[0], 1);
    float in_b = up ? 0 : __shfl_down_sync(all_lanes, tile.b[0], 1);
    if (lane == (up ? 0 : 31)) {
      in_l = wide && in ? in->l[f] : 0;
      in_b = wide && in && !up ? in->b[f] : 0;
    }
    return tile.template sums<up>(in_b, in_l);
  }
  template <bool up>
  __device__ void write_seam(Seam& out, int f) const {
    if (lane != (up ? 31 : 0)) return;
    out.l[f] = up ? tile.l[P - 1] : tile.l[0];
    out.b[f] = tile.b[0];
  }

  // Frames [c * chunk, (c + 1) * chunk) of the current half.
  template <bool up, Phase phase>
  __device__ void chunk(int c) {
    const int k0 = c * chunk_frames;
    const Seam* in = nullptr;
    Inflow inflow;
    if constexpr (wide) {
      if (!is_first<up>()) {
        in = &seam<up>(up ? warp - 1 : warp + 1, c % 2);
        inflow = {in->exponent, in->top};
      }
    }
    const int now = up ? frame<up>(k0) - 1 : frame<up>(k0) + 1;
    if (now >= 0 && now < frames) tile.clear(now);
    tile.template scale<up>(inflow);
    float out = 0;
    RONDO_UNROLL(chunk_frames)
    for (int f = 0; f < chunk_frames; ++f) {
      const int k = k0 + f;
      if (k >= count) break;
      if constexpr (wide) {
        write_seam<up>(seam<up>(warp, c % 2), f);
        out = fmaxf(out, up ? tile.l[P - 1] : fmaxf(tile.l[0], tile.b[0]));
      }
      Ahead<P>& e = next[f % ahead];
      const Sums<P> u = sums<up>(in, f);
      if constexpr (phase == Phase::posteriors) posterior(u, stored[f % ahead], e.row, f);
      a.emissions.finish(e);
      tile.template emit<up>(u, e.y, e.blank);
      if constexpr (phase == Phase::store) store_column<P>(column(e.row), tile);
      if constexpr (phase == Phase::alone) poison += 0 * e.blank;
      load_ahead<phase>(f % ahead, rows[f % ahead]);
      rows[f % ahead] = row_of<up>(k + 2 * ahead);
    }
    if constexpr (wide) {
      if (lane == (up ? 31 : 0)) {
        Seam& mine = seam<up>(warp, c % 2);
        mine.exponent = tile.exponent;
        mine.top = out > 0 ? tile.exponent + exponent_of(out) : no_exponent;
      }
    }
    if constexpr (phase == Phase::posteriors) sum_posteriors<up>(k0);
  }

  // Posteriors, up to a factor common to the frame (Z * 2^-z_exponent), into the place of the
  // emissions; the lane's sums into shared memory.
  __device__ void posterior(const Sums<P>& u, const Stored<P>& other, int64_t row, int f) {
    const int bits = tile.exponent + other.exponent - z_exponent;
    const float factor = bits < -126 ? 0 : power_of_two(bits < 127 ? bits : 127);
    struct alignas(4 * P) Part {
      float at[P];
    } part;
    float blanks = 0, all = 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      blanks += u.b[j] * factor * other.states.b[j];
      part.at[j] = u.l[j] * factor * other.states.l[j];
      all += part.at[j];
    }
    if (first < a.work.emission_stride) {
      *reinterpret_cast<Part*>(a.work.label_emission + row * a.work.emission_stride + first) = part;
    }
    s.sums[threadIdx.x / 32][f][lane] = {blanks, all + blanks};
  }

  // Sums over the lanes, a chunk of frames at once: four lanes add eight values each.
  template <bool up>
  __device__ void sum_posteriors(int k0) {
    __syncwarp();
    const int f = lane % 8;
    const bool wanted = f < chunk_frames && k0 + f < count;
    CtcPartial sum = {0, 0};
    if (wanted) {
      RONDO_UNROLL(8)
      for (int i = 0; i < 8; ++i) {
        const CtcPartial one = s.sums[threadIdx.x / 32][f][lane / 8 * 8 + i];
        sum.blank += one.blank;
        sum.all += one.all;
      }
    }
    for (int d = 8; d < 32; d *= 2) {
      sum.blank += __shfl_xor_sync(all_lanes, sum.blank, d);
      sum.all += __shfl_xor_sync(all_lanes, sum.all, d);
    }
    if (wanted && lane < 8) a.work.partial[row_of<up>(k0 + f) * a.work.tiling.warps + warp] = sum;
    __syncwarp();
  }

  // Whole halves, in chunks; warps of a direction follow each other. Barriers inside if `wide`.
  template <Phase phase>
  __device__ void run(bool up, int chunks) {
    if constexpr (wide) {
      const int mine = (count + chunk_frames - 1) / chunk_frames;
      const int order = up ? warp : tile_warps - 1 - warp;
      for (int tick = 0; tick < chunks + tile_warps - 1; ++tick) {
        const int c = tick - order;
        if (c >= 0 && c < mine) up ? chunk<true, phase>(c) : chunk<false, phase>(c);
        __syncthreads();
      }
    } else {
      for (int c = 0; c * chunk_frames < count; ++c) {
        up ? chunk<true, phase>(c) : chunk<false, phase>(c);
      }
    }
  }

  // alpha one frame before the middle meets beta in the middle: the exponent of the largest term.
  __device__ int meet(int64_t row, const Seam* in) const {
    const Sums<P> u = sums<true>(in, 0);
    Stored<P> other;
    load_column<P>(column(row), other);
    int top = no_exponent;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      if (u.b[j] > 0 && other.states.b[j] > 0) {
        top = larger(top, exponent_of(u.b[j]) + exponent_of(other.states.b[j]));
      }
      if (u.l[j] > 0 && other.states.l[j] > 0) {
        top = larger(top, exponent_of(u.l[j]) + exponent_of(other.states.l[j]));
      }
    }
    if (top > no_exponent) top += tile.exponent + other.exponent;
    for (int d = 16; d > 0; d /= 2) top = larger(top, __shfl_xor_sync(all_lanes, top, d));
    return top;
  }

  __device__ void write_end(bool up) const {
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int i = first + j;
      End& end = s.end[up ? 0 : 1];
      if (i == (up ? labels : 0)) {
        end.value[0] = tile.b[j] + poison;
        end.exponent[0] = tile.exponent;
      }
      if (i == (up ? labels - 1 : 0)) {
        end.value[1] = tile.l[j];
        end.exponent[1] = tile.exponent;
      }
    }
  }
};

// ---- one block ----

template <int P, int warps, class Emissions>
struct Lattice {
  using W = Walker<P, warps, Emissions>;
  using Shared = LatticeShared<warps>;
  const LatticeArgs<Emissions>& a;
  Shared& s;
  const int64_t n;
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
    if (a.with_grad) {
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
    if constexpr (std::is_same_v<Emissions, StoredEmissions>) {
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
  const int64_t n = blockIdx.x;
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
