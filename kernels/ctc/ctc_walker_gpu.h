// One warp of the fast lattice: where its emissions come from, the columns it stores, and how it
// walks through the frames. Addresses are one multiplication of 32-bit numbers each: integer
// instructions would be most of a time step otherwise. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/ctc_tile_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- where emissions come from ----

template <int P>
struct Ahead {  // what is loaded ahead of a frame
  float y[P];
  float blank, best;
  int32_t row;
};

template <int P>
struct alignas(4 * P) PairWords {
  float at[P];
};

// The address of a row's part of an array: one product of 32-bit numbers.
template <class T>
__device__ T* in_row(T* base, int32_t row, uint32_t row_bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(base) +
                              static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes);
}

// Written by prepare(): for the gradient, whose posteriors later take the same place.
struct StoredEmissions {
  static constexpr int few_ahead = 2;
  const float* y;
  uint32_t row_bytes;
  const CtcEmission* rows;

  template <int P>
  struct Lane {
    const float* y;  // nullptr: past the labels
  };
  // Pairs past the labels get any finite number: alpha leads nowhere from there, and beta is 0.
  // None of another lane's, which puts its posteriors there.
  template <int P>
  __device__ Lane<P> lane(const int32_t*, int32_t first, int32_t) const {
    return {static_cast<uint32_t>(first) < row_bytes / sizeof(float) ? y + first : nullptr};
  }
  template <int P>
  __device__ void load(Ahead<P>& to, const Lane<P>& at) const {
    to.blank = rows[to.row].blank;
    PairWords<P> words = {};
    if (at.y) words = *reinterpret_cast<const PairWords<P>*>(in_row(at.y, to.row, row_bytes));
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) to.y[j] = words.at[j];
  }
  template <int P>
  __device__ void finish(Ahead<P>&) const {}
};

// Gathered from the logits: nothing of the size of T * L is kept.
template <class T>
struct GatheredEmissions {
  static constexpr int few_ahead = 2;
  const T* logits;
  uint32_t row_bytes;
  const CtcEmission* rows;

  template <int P>
  struct Lane {
    int32_t label[P];  // -1: none
  };
  template <int P>
  __device__ Lane<P> lane(const int32_t* labels, int32_t first, int32_t count) const {
    Lane<P> c;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) c.label[j] = first + j < count ? labels[first + j] : -1;
    return c;
  }
  template <int P>
  __device__ void load(Ahead<P>& to, const Lane<P>& c) const {
    const CtcEmission row = rows[to.row];
    to.blank = row.blank;
    to.best = row.best;
    const T* x = in_row(logits, to.row, row_bytes);
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      to.y[j] = c.label[j] < 0 ? -INFINITY : to_float(x[c.label[j]]);
    }
  }
  template <int P>
  __device__ void finish(Ahead<P>& a) const {
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) a.y[j] = expf(a.y[j] - a.best);
  }
};

// ---- columns in memory ----

// A column of a warp: word pairs j of all lanes, for each j, then the lanes' exponents.
template <int P>
struct Stored {
  Sums<P> states = {};
  int exponent = no_exponent;  // of lanes that hold no states
};
struct alignas(8) TwoWords {
  float b, l;
};
// The warp's part of the columns, and this lane's place in it.
struct ColumnPlace {
  TwoWords* states;
  int32_t* exponents;
  uint32_t row_bytes;
  bool used;  // lanes past the last state neither write nor read

  __device__ ColumnPlace(const CtcGpuWorkspace& work, int warp, int pairs, bool in_use)
      : row_bytes(static_cast<uint32_t>(work.column_words * sizeof(float))), used(in_use) {
    float* base = work.columns + warp * 32 * (2 * pairs + 1);
    const unsigned lane = threadIdx.x % 32;
    states = reinterpret_cast<TwoWords*>(base) + lane;
    exponents = reinterpret_cast<int32_t*>(base) + 64 * pairs + lane;
  }
  template <int P>
  __device__ void store(int32_t row, const Tile<P>& tile) const {
    if (!used) return;
    TwoWords* at = in_row(states, row, row_bytes);
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) at[32 * j] = {tile.b[j], tile.l[j]};
    *in_row(exponents, row, row_bytes) = tile.exponent;
  }
  template <int P>
  __device__ void load(int32_t row, Stored<P>& to) const {
    if (!used) return;
    const TwoWords* at = in_row(states, row, row_bytes);
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const TwoWords w = at[32 * j];
      to.states.b[j] = w.b;
      to.states.l[j] = w.l;
    }
    to.exponent = *in_row(exponents, row, row_bytes);
  }
};

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
  static constexpr int ahead = warps > 4 ? Emissions::few_ahead : P == 4 ? 4 : chunk_frames;
  static_assert(chunk_frames % ahead == 0);

  const LatticeArgs<Emissions>& a;
  Shared& s;
  const int32_t n;
  const int frames, labels, tile_warps;
  const int lane, warp;  // warp: the tile's index
  const int first;       // its lane's first pair
  Tile<P> tile;
  ColumnPlace columns;
  typename Emissions::template Lane<P> emissions;
  Ahead<P> next[ahead];
  Stored<P> stored[ahead];
  int32_t rows[ahead];  // of the frames after those in `next`
  int begin = 0, count = 0;
  int z_exponent = 0;
  float poison = 0;  // 0, NaN once a row was bad

  __device__ Walker(const LatticeArgs<Emissions>& args, Shared& shared_memory, int32_t sequence,
                    int length, int label_count, int used_warps, int warp_index)
      : a(args),
        s(shared_memory),
        n(sequence),
        frames(length),
        labels(label_count),
        tile_warps(used_warps),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(warp_index),
        first((warp_index * 32 + lane) * P),
        columns(args.work, warp_index, P, first <= label_count) {}

  template <bool up>
  __device__ void start(int needed) {
    const int32_t* label = a.labels + a.label_offsets[n];
    const auto repeats_at = [&](int i) {
      return i > 0 && i < labels && label[i] == label[i - 1] ? 1 : 0;
    };
    tile.slack = frames - needed;
    tile.labels = labels - first;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int i = first + j;
      tile.repeats |= static_cast<unsigned>(repeats_at(i)) << j;
      const int to = up ? i : i + 1;
      tile.skip[j] = to > 0 && to < labels && label[to] != label[to - 1] ? 1.0f : 0.0f;
      tile.b[j] = i == (up ? 0 : labels) ? 1.0f : 0.0f;
      tile.l[j] = 0;
    }
    // Repeats in the warps before and, by a scan, in the lanes before.
    int others = 0;
    for (int i = lane; i < smaller(warp * 32 * P, labels); i += 32) others += repeats_at(i);
    for (int d = 16; d > 0; d /= 2) others += __shfl_xor_sync(all_lanes, others, d);
    const int own = __popc(tile.repeats);
    int sum = own;
    for (int d = 1; d < 32; d *= 2) sum += from_before<P, true>(sum, d, 0);
    tile.reach = first + others + sum - own;
    emissions = a.emissions.template lane<P>(label, first, labels);
    tile.template scale<up>({});
  }

  template <bool up>
  __device__ int frame(int k) const {
    return up ? begin + k : begin - k;
  }
  template <bool up>
  __device__ int32_t row_of(int k) const {
    return a.layout.row_offsets[frame<up>(smaller(k, count - 1))] + n;
  }

  template <Phase phase>
  __device__ void load_ahead(int slot, int32_t row) {
    next[slot].row = row;
    a.emissions.load(next[slot], emissions);
    if constexpr (phase == Phase::posteriors) columns.load(row, stored[slot]);
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
    // Where nothing comes in, carry is 0.
    if (wide && in && lane == (up ? 0 : 31)) {
      in_l = in->l[f];
      if constexpr (!up) in_b = in->b[f];
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
    if (warps <= 4 && (c + 1) * chunk_frames <= count) {
      chunk<up, phase, true>(c);
    } else {
      chunk<up, phase, false>(c);
    }
  }
  template <bool up, Phase phase, bool whole>
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
      if (!whole && k >= count) break;
      if constexpr (wide) {
        write_seam<up>(seam<up>(warp, c % 2), f);
        out = fmaxf(out, up ? tile.l[P - 1] : fmaxf(tile.l[0], tile.b[0]));
      }
      Ahead<P>& e = next[f % ahead];
      const Sums<P> u = sums<up>(in, f);
      if constexpr (phase == Phase::posteriors) posterior(u, stored[f % ahead], e.row, f);
      a.emissions.finish(e);
      tile.template emit<up>(u, e.y, e.blank);
      if constexpr (phase == Phase::store) columns.store(e.row, tile);
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
  __device__ void posterior(const Sums<P>& u, const Stored<P>& other, int32_t row, int f) {
    const int bits = tile.exponent + other.exponent - z_exponent;
    const float factor = bits < -126 ? 0 : power_of_two(bits < 127 ? bits : 127);
    PairWords<P> words;
    float blanks = 0, all = 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      blanks += u.b[j] * factor * other.states.b[j];
      words.at[j] = u.l[j] * factor * other.states.l[j];
      all += words.at[j];
    }
    const auto stride = static_cast<uint32_t>(a.work.emission_stride);
    if (static_cast<uint32_t>(first) < stride) {
      *reinterpret_cast<PairWords<P>*>(in_row(a.work.label_emission + first, row,
                                              stride * static_cast<uint32_t>(sizeof(float)))) =
          words;
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
    if (wanted && lane < 8)
      a.work.partial[int64_t{row_of<up>(k0 + f)} * a.work.tiling.warps + warp] = sum;
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
  __device__ int meet(int32_t row, const Seam* in) const {
    const Sums<P> u = sums<true>(in, 0);
    Stored<P> other;
    columns.load(row, other);
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

}  // namespace
}  // namespace rondo::RONDO_GPU
