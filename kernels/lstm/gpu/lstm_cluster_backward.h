// The time loop of the backward pass in clusters; kernels/lstm/gpu/lstm_cluster.h has the
// tiling.
//
// Each step of a block: the gradients of its 32 cells' pre-activations (dz); its 128 rows of R,
// transposed, times dz, which is this block's part of dh for all cells of the cluster; each part
// into the inbox of the block that owns those cells; one cluster barrier; and there the parts are
// added up in the order of the ranks. Sending dh in f32 moves half the bytes of sending dz in bf16.
// The inboxes are double buffered, so that one barrier per step is enough: what a step overwrites
// was read before the barrier of the step before.
//
// A thread has one cell (its lane) in one sequence (its warp) of each tile.
#pragma once

#include "kernels/lstm/gpu/lstm_cluster_product.h"

namespace rondo::RONDO_GPU {
namespace cluster::backward {

template <class T>
using Backward = LstmBackwardArrays<T>;

constexpr int gate_rows = 4 * block_cells;  // of a block

// Tiles of 16 cells whose dh a warp computes.
template <int blocks>
constexpr int row_tiles = blocks >= 4 ? blocks / 4 : 1;

template <class T, int blocks, int tiles>
struct BackwardShared {
  static constexpr bool narrow = sizeof(T) == sizeof(bf16);
  static constexpr int chains = narrow || row_tiles<blocks> > 1 ? 1 : 2;
  using Product = cluster::Product<T, row_tiles<blocks>, gate_rows, chains>;
  // Parts of dh from each block, [tile][sequence][cell]; the padding spreads the remote stores'
  // sequences over the banks.
  static constexpr int inbox_stride = block_cells + 4;
  alignas(16) float inbox[2][blocks][tiles][tile_sequences][inbox_stride];
  alignas(16) Stored<T> dz[tiles * tile_sequences][gate_rows + padding<T>];
  alignas(16) typename Product::Shared product;
};

struct Place {
  int warp, lane, rank;
  int64_t d, unit;

  __device__ explicit Place(int64_t direction)
      : warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        rank(static_cast<int>(cluster_rank())),
        d(direction),
        unit(int64_t{rank} * block_cells + lane) {}
  __device__ int sequence(int tile) const { return tile * tile_sequences + warp; }
};

// R transposed: rows are the cells of h, columns this block's gate rows (gate j / 32 of cell
// j % 32). Zeros outside H.
template <class T, int blocks, int tiles, class Product>
__device__ void load_weights(const Backward<T>& b, const Place& p,
                             BackwardShared<T, blocks, tiles>& s, Product& product) {
  const int64_t H = b.shape.hidden, first = p.warp * row_tiles<blocks> * 16;
  const T* r = b.r[p.d];
  product.template load<Adjacent::rows>(s.product, [&](int row, int j) {
    const int64_t k = first + row, unit = p.rank * block_cells + j % block_cells;
    return k < H && unit < H ? r[(j / block_cells * H + unit) * H + k] : to<T>(0.0f);
  });
}

// What a thread keeps of its cell in one sequence per tile.
template <class T, int tiles>
struct Cells {
  float gate[tiles][4], c[tiles], c_before[tiles], dy[tiles];  // of the coming step
  float dh[tiles], dc[tiles];

  __device__ void load_states(const Backward<T>& b, const Share& share, const Place& p) {
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      const bool mine = p.unit < b.shape.hidden && p.sequence(tile) < share.count;
      const int64_t at =
          mine ? b.shape.state(p.d, share.first + p.sequence(tile)) * b.shape.hidden + p.unit : 0;
      dh[tile] = mine && b.dh ? b.dh[at] : mine && b.dhn ? to_float(b.dhn[at]) : 0.0f;
      dc[tile] = mine && b.dcn ? b.dcn[at] : 0.0f;
    }
  }

  // `earlier` is the step before in time.
  __device__ void load_step(const Backward<T>& b, const Share& share, const Step& step,
                            const Step& earlier, const Place& p) {
    const LstmShape& s = b.shape;
    const int64_t H = s.hidden;
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      const int n = p.sequence(tile);
      if (n >= step.active || p.unit >= H) continue;
      const int64_t at = s.plane_row(p.d, step.row + n);
      RONDO_UNROLL_ALL
      for (int g = 0; g < 4; ++g) gate[tile][g] = to_float(b.gates[(at * 4 + g) * H + p.unit]);
      c[tile] = b.cells[at * H + p.unit];
      dy[tile] = to_float(b.dy[((step.row + n) * s.directions + p.d) * H + p.unit]);
      if (n < earlier.active) {
        c_before[tile] = b.cells[s.plane_row(p.d, earlier.row + n) * H + p.unit];
      } else {
        c_before[tile] = b.c0 ? b.c0[s.state(p.d, share.first + n) * H + p.unit] : 0.0f;
      }
    }
  }

  __device__ void store_states(const Backward<T>& b, const Share& share, const Place& p) const {
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      if (p.sequence(tile) >= share.count || p.unit >= b.shape.hidden) continue;
      const int64_t at =
          b.shape.state(p.d, share.first + p.sequence(tile)) * b.shape.hidden + p.unit;
      if (b.dh) b.dh[at] = dh[tile];
      if (b.dh0) b.dh0[at] = to<T>(dh[tile]);
      if (b.dc0) b.dc0[at] = dc[tile];
    }
  }
};

// dz of the step's active sequences; zeros for cells outside H, which the product reads.
template <class T, int blocks, int tiles>
__device__ void backward_cells(Cells<T, tiles>& cells, const Step& step, const Place& p, int64_t H,
                               BackwardShared<T, blocks, tiles>& s) {
  RONDO_UNROLL_ALL
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile * tile_sequences >= step.active) continue;
    Stored<T>* dz = s.dz[p.sequence(tile)] + p.lane;
    const bool mine = p.sequence(tile) < step.active && p.unit < H;
    if (mine) {
      lstm_cell_backward(cells.gate[tile], cells.c[tile], cells.c_before[tile],
                         cells.dh[tile] + cells.dy[tile], cells.dc[tile]);
    }
    RONDO_UNROLL_ALL
    for (int g = 0; g < 4; ++g) {
      dz[g * block_cells] = to_stored(to<T>(mine ? cells.gate[tile][g] : 0.0f));
    }
  }
}

// This block's part of dh of every cell, into the inboxes of the cells' blocks.
template <class T, int blocks, int tiles, class Product>
__device__ void send_parts(const Product& product, int active, int buffer, const Place& p,
                           BackwardShared<T, blocks, tiles>& s) {
  const int group = p.lane / 4, member = p.lane % 4;
  RONDO_UNROLL_ALL
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile * tile_sequences >= active) continue;
    float part[row_tiles<blocks>][4];
    product.multiply(s.product, s.dz[tile * tile_sequences + group], part);
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles<blocks>; ++i) {
      const int row_tile = p.warp * row_tiles<blocks> + i;
      if (row_tile >= 2 * blocks) continue;
      constexpr int stride = BackwardShared<T, blocks, tiles>::inbox_stride;
      float* to = map_shared(&s.inbox[buffer][p.rank][tile][2 * member][row_tile % 2 * 16 + group],
                             static_cast<unsigned>(row_tile / 2));
      to[0] = part[i][0];
      to[stride] = part[i][1];
      to[8] = part[i][2];
      to[stride + 8] = part[i][3];
    }
  }
}

// The thread's dz to memory, as it has put them into shared memory itself.
template <class T, int blocks, int tiles>
__device__ void store_gradients(const Backward<T>& b, const Step& step, const Place& p,
                                const BackwardShared<T, blocks, tiles>& s) {
  const int64_t H = b.shape.hidden;
  RONDO_UNROLL_ALL
  for (int tile = 0; tile < tiles; ++tile) {
    const int n = p.sequence(tile);
    if (n >= step.active || p.unit >= H) continue;
    T* to = b.dgates + b.shape.plane_row(p.d, step.row + n) * 4 * H + p.unit;
    RONDO_UNROLL_ALL
    for (int g = 0; g < 4; ++g) to[g * H] = from_stored(s.dz[n][g * block_cells + p.lane]);
  }
}

// dh that came back through R.
template <class T, int blocks, int tiles>
__device__ void receive_parts(Cells<T, tiles>& cells, const Step& step, int buffer, const Place& p,
                              int64_t H, const BackwardShared<T, blocks, tiles>& s) {
  RONDO_UNROLL_ALL
  for (int tile = 0; tile < tiles; ++tile) {
    if (p.sequence(tile) >= step.active || p.unit >= H) continue;
    float sum = 0;
    RONDO_UNROLL_ALL
    for (int from = 0; from < blocks; ++from) sum += s.inbox[buffer][from][tile][p.warp][p.lane];
    cells.dh[tile] = sum;
  }
}

// The sequences of the calling cluster, in direction d: all their steps, on every thread of a
// block.
template <class T, int blocks, int tiles>
__device__ void run_sequences(const Backward<T>& b, int64_t d) {
  if (!RONDO_SM90) return;
  using Shared = BackwardShared<T, blocks, tiles>;
  auto& s = shared<Shared>();
  const PackedView& layout = b.shape.layout;
  const Share share = share_of(layout, blocks, tiles * tile_sequences);
  if (share.count <= 0) return;
  const Place p(d);
  typename Shared::Product product;
  load_weights(b, p, s, product);
  Cells<T, tiles> cells = {};
  cells.load_states(b, share, p);
  const auto frame_at = [&](int64_t step) { return load_frame(layout, share, p.d, step); };
  Step now = step_of(share, frame_at(share.frames - 1));
  Step next = step_of(share, frame_at(share.frames - 2));
  Frame following = frame_at(share.frames - 3);
  cells.load_step(b, share, now, next, p);
  cluster_sync();
  for (int64_t step = share.frames - 1; step >= 0; --step) {
    const Step after_next = step_of(share, following);
    following = frame_at(step - 3);
    const int buffer = static_cast<int>(step % 2);
    backward_cells(cells, now, p, b.shape.hidden, s);
    __syncthreads();
    send_parts(product, now.active, buffer, p, s);
    cluster_arrive();
    store_gradients(b, now, p, s);
    cells.load_step(b, share, next, after_next, p);
    cluster_wait();
    receive_parts(cells, now, buffer, p, b.shape.hidden, s);
    now = next;
    next = after_next;
  }
  cells.store_states(b, share, p);
}

}  // namespace cluster::backward
}  // namespace rondo::RONDO_GPU
