// The forward pass in clusters; kernels/lstm/lstm_cluster.h has the plan.
//
// Each step of a block: its 128 rows of R (4 gates x 32 cells, 16 rows to a warp) times the h of
// the cluster's sequences, which lies complete in its shared memory; the cells; the new h of its
// own cells into the shared memory of all blocks; one cluster barrier. h is double buffered, so
// that one barrier per step is enough: what a step overwrites was read before the barrier of the
// step before.
//
// The rows of a warp are its four cells' i, f, g, o, so that a thread pair (16 lanes apart) holds
// the gates of a cell in two sequences, and each computes one after an exchange. Global stores wait
// until the barrier is behind, or the barrier would wait for them.
#include "kernels/lstm/lstm_cluster.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace cluster;

using Forward = LstmForwardArrays<bf16>;

template <int blocks, int tiles>
struct ForwardShared {
  // The padding spreads the sequences over the banks.
  static constexpr int width = blocks * block_cells, stride = width + chunk_elements;
  alignas(16) uint16_t h[2][tiles * tile_sequences][stride];
  alignas(16) Stage stages[warps];
};

// A thread's place: which of the block's warps and lanes, its cell, and its sequence in a tile.
struct Place {
  int warp, lane, group, member, half;
  int64_t d, unit;  // direction, cell

  __device__ Place()
      : warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        group(lane / 4),
        member(lane % 4),
        half(lane / 16),
        d(blockIdx.y),
        unit(int64_t{cluster_rank()} * block_cells + warp * 4 + group % 4) {}
  __device__ int sequence(int tile) const { return tile * tile_sequences + 2 * member + half; }
};

// A warp's 16 rows: gate row / 4 of cell row % 4; zeros outside H.
template <int blocks, int tiles>
__device__ void load_weights(const Forward& f, const Place& p, ForwardShared<blocks, tiles>& s,
                             uint32_t (&a)[2 * blocks][4]) {
  const int64_t H = f.shape.hidden, first = p.unit - p.group % 4;
  const bf16* r = f.r[p.d];
  const auto at = [&](int row, int k) {
    const int64_t unit = first + row % 4;
    return unit < H && k < H ? r[(row / 4 * H + unit) * H + k] : to_bf16(0.0f);
  };
  load_fragments<Adjacent::columns>(s.stages[p.warp], at, a);
}

// Both buffers: a sequence of direction 1 may begin at either.
template <int blocks, int tiles>
__device__ void load_initial_h(const Forward& f, const Share& share, int64_t d,
                               ForwardShared<blocks, tiles>& s) {
  constexpr int width = ForwardShared<blocks, tiles>::width;
  const int64_t H = f.shape.hidden;
  for (int i = static_cast<int>(threadIdx.x); i < tiles * tile_sequences * width; i += threads) {
    const int n = i / width, k = i % width;
    uint16_t h = 0;
    if (f.h0 && n < share.count && k < H) {
      h = f.h0[f.shape.state(d, share.first + n) * H + k].bits;
    }
    s.h[0][n][k] = s.h[1][n][k] = h;
  }
}

// What a thread keeps of its cell in one sequence per tile.
template <int tiles>
struct Cells {
  float pre[tiles][4];  // of the coming step
  float gate[tiles][4];
  float c[tiles];
  bf16 h[tiles];

  __device__ void load_states(const Forward& f, const Share& share, const Place& p) {
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      const bool mine = p.unit < f.shape.hidden && p.sequence(tile) < share.count;
      const int64_t at =
          mine ? f.shape.state(p.d, share.first + p.sequence(tile)) * f.shape.hidden + p.unit : 0;
      c[tile] = mine && f.c0 ? f.c0[at] : 0.0f;
      h[tile] = mine && f.h0 ? f.h0[at] : to_bf16(0.0f);
    }
  }

  __device__ void load_pre(const Forward& f, const Step& step, const Place& p, int tile) {
    const int64_t H = f.shape.hidden;
    if (p.sequence(tile) >= step.active || p.unit >= H) return;
    const float* from =
        f.pre + f.shape.plane_row(p.d, step.row + p.sequence(tile)) * 4 * H + p.unit;
    RONDO_UNROLL_ALL
    for (int g = 0; g < 4; ++g) pre[tile][g] = from[g * H];
  }

  __device__ void store_step(const Forward& f, const Step& step, const Place& p) const {
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
      for (int g = 0; g < 4; ++g) f.gates[(at * 4 + g) * H + p.unit] = to_bf16(gate[tile][g]);
    }
  }

  __device__ void store_states(const Forward& f, const Share& share, const Place& p) const {
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

// The warp's rows of R times one tile's h, in four interleaved chains along k; after the exchange
// each thread has the four sums of its own cell and sequence.
template <int blocks, int stride>
__device__ void recurrent_product(const uint32_t (&a)[2 * blocks][4], const uint16_t (*h)[stride],
                                  const Place& p, float (&sum)[4]) {
  constexpr int chains = 4;
  float chain[chains][4] = {};
  const uint16_t* row = h[p.group] + 2 * p.member;
  RONDO_UNROLL_ALL
  for (int k_tile = 0; k_tile < 2 * blocks; ++k_tile) {
    const uint32_t b[2] = {load_pair(row + k_tile * 16), load_pair(row + k_tile * 16 + 8)};
    mma_m16n8k16(chain[k_tile % chains], a[k_tile], b);
  }
  float c[4];
  RONDO_UNROLL_ALL
  for (int i = 0; i < 4; ++i) c[i] = (chain[0][i] + chain[1][i]) + (chain[2][i] + chain[3][i]);
  // c: gates half and half + 2 of sequences 2 member and 2 member + 1. The lower half takes the
  // even sequence, the upper the odd one.
  const float got_low = __shfl_xor_sync(~0u, p.half ? c[0] : c[1], 16);
  const float got_high = __shfl_xor_sync(~0u, p.half ? c[2] : c[3], 16);
  sum[0] = p.half ? got_low : c[0];
  sum[1] = p.half ? c[1] : got_low;
  sum[2] = p.half ? got_high : c[2];
  sum[3] = p.half ? c[3] : got_high;
}

// The block's own columns of h, of `active` sequences, to the other blocks.
template <int stride>
__device__ void share_h(uint16_t (*h)[stride], int blocks, int active, const Place& p) {
  constexpr int chunks = block_cells / chunk_elements;
  const auto rank = static_cast<int>(cluster_rank());
  for (int to = p.warp; to < blocks; to += warps) {
    if (to == rank) continue;
    for (int i = p.lane; i < active * chunks; i += 32) {
      uint16_t* mine = &h[i / chunks][rank * block_cells + i % chunks * chunk_elements];
      copy_chunk(map_shared(mine, static_cast<unsigned>(to)), mine);
    }
  }
}

template <int blocks, int tiles>
__global__ void __launch_bounds__(threads, 1) cluster_forward(Forward f) {
  if (!RONDO_SM90) return;
  auto& s = shared<ForwardShared<blocks, tiles>>();
  const Share share = share_of(f.shape.layout, blocks, tiles * tile_sequences);
  if (share.count <= 0) return;
  const Place p;
  uint32_t a[2 * blocks][4];
  load_weights(f, p, s, a);
  load_initial_h(f, share, p.d, s);
  Cells<tiles> cells = {};
  cells.load_states(f, share, p);
  Step before = {0, 0, 0}, now = step_at(f.shape.layout, share, p.d, 0);
  RONDO_UNROLL_ALL
  for (int tile = 0; tile < tiles; ++tile) cells.load_pre(f, now, p, tile);
  cluster_sync();
  for (int64_t step = 0; step < share.frames; ++step) {
    const Step after = step_at(f.shape.layout, share, p.d, step + 1);
    const int buffer = static_cast<int>(step % 2);
    cells.store_step(f, before, p);
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile * tile_sequences >= now.active) continue;
      float sum[4];
      recurrent_product<blocks>(a, &s.h[buffer][tile * tile_sequences], p, sum);
      if (p.sequence(tile) < now.active && p.unit < f.shape.hidden) {
        RONDO_UNROLL_ALL
        for (int g = 0; g < 4; ++g) cells.gate[tile][g] = cells.pre[tile][g] + sum[g];
        cells.h[tile] = to_bf16(lstm_cell_forward<bf16>(cells.gate[tile], cells.c[tile]));
        s.h[1 - buffer][p.sequence(tile)][p.unit] = cells.h[tile].bits;
      }
    }
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) cells.load_pre(f, after, p, tile);
    __syncthreads();
    share_h(s.h[1 - buffer], blocks, now.active, p);
    cluster_sync();
    before = now;
    now = after;
  }
  cells.store_step(f, before, p);
  cells.store_states(f, share, p);
}

template <class F>
void with_kernel(const LstmForwardArgs& a, F f) {
  const int64_t sequences = a.layout.capacity.sequences;
  const int directions = a.dims.directions;
  const auto launch_of = [&](auto blocks, auto tiles) {
    return configuration("lstm cluster_forward", blocks, tiles, directions, sequences,
                         sizeof(ForwardShared<blocks, tiles>));
  };
  with_geometry(
      a.dims.hidden, directions, sequences,
      [&](auto blocks, auto tiles) {
        return resident_clusters(launch_of(blocks, tiles), cluster_forward<blocks, tiles>);
      },
      [&](auto blocks, auto tiles) {
        f(launch_of(blocks, tiles), cluster_forward<blocks, tiles>);
      });
}

}  // namespace

bool lstm_forward_cluster_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmForwardArgs*>(args);
  if (!a) return cluster_machine(cluster_forward<2, 1>, sizeof(ForwardShared<2, 1>));
  if (a->run != LstmRun::both) return false;
  if (!lstm_suits("cluster", context.backend, a->dims, a->x.dtype, a->layout.capacity.sequences))
    return false;
  bool fits = false;
  with_kernel(*a, [&](const LaunchConfig& config, auto kernel) {
    fits = resident_clusters(config, kernel) > 0;
  });
  return fits;
}

void lstm_forward_cluster(const Context& context, const LstmForwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  lstm_gpu_input_products(context, a, space);
  const Forward f(a, space);
  with_kernel(a,
              [&](const LaunchConfig& config, auto kernel) { launch(context, config, kernel, f); });
}

}  // namespace rondo::RONDO_GPU
