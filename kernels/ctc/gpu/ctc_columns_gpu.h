// What a warp of the fast lattice reads and stores: emissions, columns, and what warps of a block
// tell each other. Addresses are one multiplication of 32-bit numbers each: integer instructions
// would be most of a time step otherwise. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_loss_gpu.h"
#include "kernels/ctc/gpu/ctc_tile_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- where emissions come from ----

template <int P>
struct Ahead {  // what is loaded ahead of a frame
  float y[P];
  float blank, best;
  int32_t row;  // without the sequence's place among those of its frame
};

template <int P>
struct alignas(4 * P) PairWords {
  float at[P];
};

// Written by prepare(): for the gradient, whose posteriors later take the same place.
struct StoredEmissions {
  // A block of many warps holds one direction alone (ctc_apart.cu), so registers are there for it.
  static constexpr int few_ahead = ctc_most_chunk;
  float* y;
  uint32_t row_bytes;
  const CtcEmission* rows;

  template <int P>
  struct Lane {
    float* y;  // in the first frame's row
    int32_t n;
  };
  // Pairs past the labels get any finite number: alpha leads nowhere from there, and beta is 0.
  // None of another lane's, which puts its posteriors there: a row's last `ctc_emission_end` words
  // are nobody's. A load under a condition would be copied, and the copy would wait for it.
  template <int P>
  __device__ Lane<P> lane(const int32_t*, int32_t n, int32_t first, int32_t) const {
    const auto words = static_cast<int32_t>(row_bytes / sizeof(float));
    const int32_t at = smaller(first, words - ctc_emission_end);
    return {in_row(y + at, n, row_bytes), n};
  }
  template <int P>
  __device__ void load(Ahead<P>& to, const Lane<P>& at) const {
    to.blank = rows[at.n + to.row].blank;
    const auto words = *reinterpret_cast<const PairWords<P>*>(in_row(at.y, to.row, row_bytes));
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
    const T* logits;
    int32_t n;
  };
  template <int P>
  __device__ Lane<P> lane(const int32_t* labels, int32_t n, int32_t first, int32_t count) const {
    Lane<P> c;
    c.logits = in_row(logits, n, row_bytes);
    c.n = n;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) c.label[j] = first + j < count ? labels[first + j] : -1;
    return c;
  }
  template <int P>
  __device__ void load(Ahead<P>& to, const Lane<P>& c) const {
    const CtcEmission row = rows[c.n + to.row];
    to.blank = row.blank;
    to.best = row.best;
    const T* x = in_row(c.logits, to.row, row_bytes);
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

template <class Emissions>
struct LatticeArgs : LossArgs {
  Emissions emissions;
};

template <class T>
LossArgs loss_args(const Problem<T>& p) {
  return {p.layout, p.labels, p.label_offsets, p.loss, p.zero_infinity ? 0.0f : INFINITY, p.work};
}
template <class T>
LatticeArgs<StoredEmissions> stored_emissions(const Problem<T>& p) {
  return {loss_args(p),
          {p.work.label_emission, static_cast<uint32_t>(p.work.emission_stride * sizeof(float)),
           p.work.emission}};
}
template <class T>
LatticeArgs<GatheredEmissions<T>> gathered_emissions(const Problem<T>& p) {
  return {loss_args(p), {p.logits, static_cast<uint32_t>(p.classes * sizeof(T)), p.work.emission}};
}

// ---- columns in memory ----

// States of one or two pairs in one access.
template <int P>
struct alignas(P == 1 ? 8 : 16) StateWords {
  static constexpr int pairs = P == 1 ? 1 : 2, vectors = P / pairs;
  float at[2 * pairs];

  // As the i-th of the lane's vectors.
  template <class States>
  __device__ void put(int i, const States& from) {
    RONDO_UNROLL(2)
    for (int j = 0; j < pairs; ++j) {
      at[2 * j] = from.b[i * pairs + j];
      at[2 * j + 1] = from.l[i * pairs + j];
    }
  }
  template <class States>
  __device__ void get(int i, States& to) const {
    RONDO_UNROLL(2)
    for (int j = 0; j < pairs; ++j) {
      to.b[i * pairs + j] = at[2 * j];
      to.l[i * pairs + j] = at[2 * j + 1];
    }
  }
};

// A column of a warp: vectors i of all lanes, for each i, then the lanes' exponents.
template <int P>
struct Stored {
  Sums<P> states = {};
  int exponent = no_exponent;  // of lanes that hold no states
};
// The warp's part of an array of columns, and this lane's place in it.
struct ColumnPlace {
  float* states;
  int32_t* exponents;
  uint32_t row_bytes;
  bool used;  // lanes past the last state neither write nor read

  // `all`: lanes past the last state do as the others, in places of their own.
  __device__ ColumnPlace(float* columns, int64_t column_words, int warp, int pairs, int used_lanes,
                         bool all)
      : row_bytes(static_cast<uint32_t>(column_words * sizeof(float))) {
    float* base = columns + warp * 32 * (2 * pairs + 1);
    const int lane = static_cast<int>(threadIdx.x % 32);
    used = all || lane < used_lanes;
    states = base + lane * (pairs == 1 ? 2 : 4);
    exponents = reinterpret_cast<int32_t*>(base) + 64 * pairs + lane;
  }
  template <int P, class Floats>
  __device__ auto* vectors(Floats* of_lane) const {
    using Words = std::conditional_t<std::is_const_v<Floats>, const StateWords<P>, StateWords<P>>;
    return reinterpret_cast<Words*>(of_lane);
  }
  template <int P, bool compact>
  __device__ void store(int32_t row, const Tile<P, compact>& tile) const {
    if (!used) return;
    store_states<P>(row, tile);
    store_exponent(row, tile.exponent);
  }
  template <int P, class States>
  __device__ void store_states(int32_t row, const States& tile) const {
    StateWords<P>* at = vectors<P>(in_row(states, row, row_bytes));
    RONDO_UNROLL(P)
    for (int i = 0; i < StateWords<P>::vectors; ++i) {
      StateWords<P> words;
      words.put(i, tile);
      at[32 * i] = words;
    }
  }
  template <int P>
  __device__ void store_words(int32_t row,
                              const StateWords<P> (&words)[StateWords<P>::vectors]) const {
    StateWords<P>* at = vectors<P>(in_row(states, row, row_bytes));
    RONDO_UNROLL(P)
    for (int i = 0; i < StateWords<P>::vectors; ++i) at[32 * i] = words[i];
  }
  __device__ void store_exponent(int32_t row, int exponent) const {
    *in_row(exponents, row, row_bytes) = exponent;
  }
  template <int P>
  __device__ void load(int32_t row, Stored<P>& to) const {
    if (!used) return;
    const StateWords<P>* at = vectors<P>(in_row(states, row, row_bytes));
    RONDO_UNROLL(P)
    for (int i = 0; i < StateWords<P>::vectors; ++i) {
      const StateWords<P> words = at[32 * i];
      words.get(i, to.states);
    }
    to.exponent = *in_row(exponents, row, row_bytes);
  }
  // Into shared memory, complete when the copies are.
  template <int P>
  __device__ void copy(int32_t row, StateWords<P> (&to)[StateWords<P>::vectors][32]) const {
    const StateWords<P>* at = vectors<P>(in_row(states, row, row_bytes));
    RONDO_UNROLL(P)
    for (int i = 0; i < StateWords<P>::vectors; ++i) {
      cp_async<sizeof(StateWords<P>)>(&to[i][threadIdx.x % 32], &at[32 * i]);
    }
  }
  __device__ void copy_exponent(int32_t row, int32_t& to) const {
    cp_async<4>(&to, in_row(exponents, row, row_bytes));
  }
  // A walk goes on from here; its next scaling makes the rest of the tile.
  template <int P, bool compact>
  __device__ void load(int32_t row, Tile<P, compact>& tile) const {
    if (!used) return;
    Stored<P> column;
    load(row, column);
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      tile.b[j] = column.states.b[j];
      tile.l[j] = column.states.l[j];
    }
    tile.exponent = column.exponent;
  }
};

// ---- shared memory ----

// Lanes' sums of posteriors, for whom Stage (ctc_stage_gpu.h) does not hold them.
template <int warps>
struct LaneSums {
  CtcPartial sums[2 * warps][ctc_most_chunk][33];  // [warp][frame][lane]
};
// `Frames`: what goes through shared memory for every frame, LaneSums or stages.
template <int warps, class Frames>
struct LatticeShared {
  Frames frames;
  CtcSeam seam[2][warps][2];  // [direction][warp][odd or even chunk]
  End end[2];
  int top[2 * warps];
  LossShared loss;
};

}  // namespace
}  // namespace rondo::RONDO_GPU
