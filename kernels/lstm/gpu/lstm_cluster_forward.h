// The time loop of the forward pass in clusters; kernels/lstm/gpu/lstm_cluster.h has the
// tiling.
//
// Each step of a block: its 128 rows of R (4 gates x 32 cells, 16 rows to a warp) times the h of
// the cluster's sequences, which lies complete in its shared memory; the cells; the new h of its
// own cells into the shared memory of all blocks; one cluster barrier. h is double buffered, so
// that one barrier per step is enough: what a step overwrites was read before the barrier of the
// step before.
//
// The rows of a warp are its four cells' i, f, g, o, so that a thread pair (16 lanes apart) holds
// the gates of a cell in two sequences, and each computes one after an exchange.
#pragma once

#include "kernels/lstm/gpu/lstm_cluster_product.h"

namespace rondo::RONDO_GPU {
namespace cluster::forward {

template <class T>
using Forward = LstmForwardArrays<T>;

template <class T, int blocks, int tiles>
struct ForwardShared {
  static constexpr int width = blocks * block_cells, stride = width + padding<T>;
  using Product = cluster::Product<T, 1, width, sizeof(T) == sizeof(bf16) ? 4 : 2>;
  alignas(16) Stored<T> h[2][tiles * tile_sequences][stride];
  alignas(16) typename Product::Shared product;
};

// A thread's place: which of the block's warps and lanes, its cell, and its sequence in a tile.
struct Place {
  int warp, lane, group, member, half;
  int64_t d, unit;  // direction, cell

  __device__ explicit Place(int64_t direction)
      : warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        group(lane / 4),
        member(lane % 4),
        half(lane / 16),
        d(direction),
        unit(int64_t{cluster_rank()} * block_cells + warp * 4 + group % 4) {}
  __device__ int sequence(int tile) const { return tile * tile_sequences + 2 * member + half; }
};

// A warp's 16 rows: gate row / 4 of cell row % 4; zeros outside H.
template <class T, class Shared>
__device__ void load_weights(const Forward<T>& f, const Place& p, Shared& s,
                             typename Shared::Product& product) {
  const int64_t H = f.shape.hidden, first = p.unit - p.group % 4;
  const T* r = f.r[p.d];
  product.template load<Adjacent::columns>(s.product, [&](int row, int k) {
    const int64_t unit = first + row % 4;
    return unit < H && k < H ? r[(row / 4 * H + unit) * H + k] : to<T>(0.0f);
  });
}

// Both buffers: a sequence of direction 1 may begin at either.
template <class T, int blocks, int tiles>
__device__ void load_initial_h(const Forward<T>& f, const Share& share, int64_t d,
                               ForwardShared<T, blocks, tiles>& s) {
  constexpr int width = blocks * block_cells;
  const int64_t H = f.shape.hidden;
  for (int i = static_cast<int>(threadIdx.x); i < tiles * tile_sequences * width; i += threads) {
    const int n = i / width, k = i % width;
    T h = to<T>(0.0f);
    if (f.h0 && n < share.count && k < H) h = f.h0[f.shape.state(d, share.first + n) * H + k];
    s.h[0][n][k] = s.h[1][n][k] = to_stored(h);
  }
}

// What a thread keeps of its cell in one sequence per tile.
template <class T, int tiles>
struct Cells {
  T pre[tiles][4];  // of the coming step
  float gate[tiles][4];
  float c[tiles];
  T h[tiles];

  __device__ void load_states(const Forward<T>& f, const Share& share, const Place& p) {
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      const bool mine = p.unit < f.shape.hidden && p.sequence(tile) < share.count;
      const int64_t at =
          mine ? f.shape.state(p.d, share.first + p.sequence(tile)) * f.shape.hidden + p.unit : 0;
      c[tile] = mine && f.c0 ? f.c0[at] : 0.0f;
      h[tile] = mine && f.h0 ? f.h0[at] : to<T>(0.0f);
    }
  }

  __device__ void load_pre(const Forward<T>& f, const Step& step, const Place& p) {
    const int64_t H = f.shape.hidden;
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      if (p.sequence(tile) >= step.active || p.unit >= H) continue;
      const T* from = f.pre + f.shape.plane_row(p.d, step.row + p.sequence(tile)) * 4 * H + p.unit;
      RONDO_UNROLL_ALL
      for (int g = 0; g < 4; ++g) pre[tile][g] = from[g * H];
    }
  }

  __device__ void store_step(const Forward<T>& f, const Step& step, const Place& p) const {
    const LstmShape& s = f.shape;
    const int64_t H = s.hidden;
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      if (p.sequence(tile) >= step.active || p.unit >= H) continue;
      const int64_t row = step.row + p.sequence(tile), at = s.plane_row(p.d, row);
      f.y[(row * s.directions + p.d) * H + p.unit] = h[tile];
      if (f.cells) f.cells[at * H + p.unit] = c[tile];
      if (!f.gates) continue;
      RONDO_UNROLL_ALL
      for (int g = 0; g < 4; ++g) f.gates[(at * 4 + g) * H + p.unit] = to<T>(gate[tile][g]);
    }
  }

  __device__ void store_states(const Forward<T>& f, const Share& share, const Place& p) const {
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      if (p.sequence(tile) >= share.count || p.unit >= f.shape.hidden) continue;
      const int64_t at =
          f.shape.state(p.d, share.first + p.sequence(tile)) * f.shape.hidden + p.unit;
      if (f.hn) f.hn[at] = h[tile];
      if (f.cn) f.cn[at] = c[tile];
    }
  }
};

// From a fragment of the warp's product: the four sums of the thread's own cell and sequence.
__device__ inline void gather_gates(const float (&c)[4], const Place& p, float (&sum)[4]) {
  // c: gates half and half + 2 of sequences 2 member and 2 member + 1. The lower half takes the
  // even sequence, the upper the odd one.
  const float got_low = __shfl_xor_sync(~0u, p.half ? c[0] : c[1], 16);
  const float got_high = __shfl_xor_sync(~0u, p.half ? c[2] : c[3], 16);
  sum[0] = p.half ? got_low : c[0];
  sum[1] = p.half ? c[1] : got_low;
  sum[2] = p.half ? got_high : c[2];
  sum[3] = p.half ? c[3] : got_high;
}

// The block's own columns of h, of `active` sequences, to the other blocks: each has its warps, or
// its turn of a warp.
template <int blocks, class T, int rows, int stride>
__device__ void share_h(T (&h)[rows][stride], int active, const Place& p) {
  constexpr int chunk = 16 / static_cast<int>(sizeof(T)), chunks = block_cells / chunk;
  constexpr int warps_each = blocks < warps ? warps / blocks : 1;
  const auto rank = static_cast<int>(cluster_rank());
  RONDO_UNROLL_ALL
  for (int to = p.warp % blocks; to < blocks; to += warps) {
    if (to == rank) continue;
    RONDO_UNROLL_ALL
    for (int first = 0; first < rows * chunks; first += 32 * warps_each) {
      const int i = first + p.warp / blocks * 32 + p.lane;
      if (i >= active * chunks) continue;
      T* mine = &h[i / chunks][rank * block_cells + i % chunks * chunk];
      copy_chunk(map_shared(mine, static_cast<unsigned>(to)), mine);
    }
  }
}

// The sequences of the calling cluster, in direction d: all their steps, on every thread of a
// block.
template <class T, int blocks, int tiles>
__device__ void run_sequences(const Forward<T>& f, int64_t d) {
  if (!RONDO_SM90) return;
  using Shared = ForwardShared<T, blocks, tiles>;
  auto& s = shared<Shared>();
  const Share share = share_of(f.shape.layout, blocks, tiles * tile_sequences);
  if (share.count <= 0) return;
  const Place p(d);
  typename Shared::Product product;
  load_weights(f, p, s, product);
  load_initial_h(f, share, p.d, s);
  const LstmCellBias<T> bias(f, p.d, p.unit);
  Cells<T, tiles> cells = {};
  cells.load_states(f, share, p);
  const auto frame_at = [&](int64_t step) { return load_frame(f.shape.layout, share, p.d, step); };
  Step now = step_of(share, frame_at(0));
  Frame following = frame_at(1);
  cells.load_pre(f, now, p);
  cluster_sync();
  for (int64_t step = 0; step < share.frames; ++step) {
    const Step after = step_of(share, following);
    following = frame_at(step + 2);
    const int buffer = static_cast<int>(step % 2);
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile * tile_sequences >= now.active) continue;
      float rows[1][4], sum[4];
      product.multiply(s.product, s.h[buffer][tile * tile_sequences + p.group], rows);
      gather_gates(rows[0], p, sum);
      if (p.sequence(tile) < now.active && p.unit < f.shape.hidden) {
        RONDO_UNROLL_ALL
        for (int g = 0; g < 4; ++g) {
          cells.gate[tile][g] = bias.added_to(cells.pre[tile][g], g) + sum[g];
        }
        cells.h[tile] = to<T>(lstm_cell_forward<T>(cells.gate[tile], cells.c[tile]));
        s.h[1 - buffer][p.sequence(tile)][p.unit] = to_stored(cells.h[tile]);
      }
    }
    __syncthreads();
    share_h<blocks>(s.h[1 - buffer], now.active, p);
    cluster_arrive();
    cells.store_step(f, now, p);
    cells.load_pre(f, after, p);
    cluster_wait();
    now = after;
  }
  cells.store_states(f, share, p);
}

}  // namespace cluster::forward
}  // namespace rondo::RONDO_GPU
