// What a warp of the fast lattice reads and stores: emissions, columns, and what warps of a block
// tell each other. Addresses are one multiplication of 32-bit numbers each: integer instructions
// would be most of a time step otherwise. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/ctc_loss_gpu.h"
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

// A column of a warp: word pairs j of all lanes, for each j, then the lanes' exponents.
template <int P>
struct Stored {
  Sums<P> states = {};
  int exponent = no_exponent;  // of lanes that hold no states
};
struct alignas(8) TwoWords {
  float b, l;
};
// The warp's part of an array of columns, and this lane's place in it.
struct ColumnPlace {
  TwoWords* states;
  int32_t* exponents;
  uint32_t row_bytes;
  bool used;  // lanes past the last state neither write nor read

  __device__ ColumnPlace(float* columns, int64_t column_words, int warp, int pairs, bool in_use)
      : row_bytes(static_cast<uint32_t>(column_words * sizeof(float))), used(in_use) {
    float* base = columns + warp * 32 * (2 * pairs + 1);
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
  // A walk goes on from here; its next scaling makes the rest of the tile.
  template <int P>
  __device__ void load(int32_t row, Tile<P>& tile) const {
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

template <int warps>
struct LatticeShared {
  CtcSeam seam[2][warps][2];                       // [direction][warp][odd or even chunk]
  CtcPartial sums[2 * warps][ctc_most_chunk][33];  // [warp][frame][lane]
  End end[2];
  int top[2 * warps];
  LossShared loss;
};

}  // namespace
}  // namespace rondo::RONDO_GPU
