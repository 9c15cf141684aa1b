// The persistent LSTM kernels over a grid of clusters: what forward and backward share; for
// lstm_grid_cluster_*.cu.
//
// A cluster owns a few cells of one direction and the rows of R (forward; backward: the columns)
// that they need, held in registers for the whole sequence. Its blocks share the columns: each
// reads its part of what all clusters announced at the step before, multiplies it by its part of
// all the cluster's rows, and stores the sums into the inboxes of the cells' blocks through
// distributed shared memory. So a block reads 1 / blocks of the operand, and a barrier of the
// cluster is all it waits for beside the data.
//
// Between clusters there are no flags: a word of exchanged memory says itself whether it is there.
// Before the launch all words are `missing`, which no result ever is (absent() sees to that), every
// word is written once, and readers poll those that are missing. Nothing else is handed from block
// to block, so relaxed accesses are enough. (The idea is that of Lamport's registers, and of the
// "low latency" protocols of collective libraries; here memory of its own for each step takes the
// place of sequence numbers.)
//
// A step takes the sequences in passes of 16, or 8 where there are no more; a pass waits for its
// own words alone: while those of one are on their way between blocks, another is computed. The
// cells of consecutive passes are those of different warps, where there are warps enough.
//
// Products are mma_m16n8k16 with the weights as A and 8 sequences as B. Each warp sums over its own
// chunks of 32 columns; parts are added up in the order of warps, then of blocks: the bits do not
// depend on the passes.
#pragma once

#include "kernels/lstm/lstm_grid_cells.h"

namespace rondo::RONDO_GPU {
namespace grid_cluster {

using grid::BackwardInputs;
using grid::ForwardInputs;
using grid::load_backward_inputs;
using grid::load_forward_inputs;
using grid::PartRow;
using grid::Step;
using grid::step_at;
using grid::store_final_states;
using grid::threads;
using grid::tile_sequences;
using grid::warps;

// Up to so many sequences, passes are of 8: one of them is faster than one of 16, but by the
// figures of docs/kernels.md two are slower.
constexpr int64_t most_in_small_passes = 8;

constexpr int chunk_columns = 32;  // two products deep; a lane loads 8 columns of it at once

// ---- exchanged words: two bf16 each ----

constexpr uint32_t missing = 0xffffffffu;
constexpr int missing_byte = 0xff;

// As it is announced: a pair of NaNs that looks missing becomes another pair of NaNs.
__device__ inline uint32_t announced(uint32_t pair) { return pair == missing ? 0xffff7fffu : pair; }
__device__ inline uint32_t pair_of(uint32_t low, uint32_t high) {
  return announced(low | high << 16);
}
__device__ inline bool is_there(const Words<16>& words) {
  return words.w[0] != missing && words.w[1] != missing && words.w[2] != missing &&
         words.w[3] != missing;
}

// ---- products ----

// `blocks` to a cluster, which has 16 row_tiles rows; `chunks` of columns to a warp; `tiles` of
// sequences to a pass.
template <int blocks_, int row_tiles_, int chunks_, int tiles_>
struct Product {
  static constexpr int blocks = blocks_, row_tiles = row_tiles_, chunks = chunks_, tiles = tiles_;
  static constexpr int rows = 16 * row_tiles, block_rows = rows / blocks;
  static constexpr int pass_sequences = tiles * tile_sequences;

  uint32_t a[row_tiles][2 * chunks][4];

  // Where this warp's chunk begins. Neighbouring chunks belong to different blocks.
  static __device__ int first_column(int chunk) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return ((chunk * warps + warp) * blocks + static_cast<int>(cluster_rank())) * chunk_columns;
  }
  // The column of this warp's k-th product: ordered so that the two fragments of a chunk are 16
  // bytes in a row of memory.
  static __device__ int column(int k) {
    const int tile = k % chunk_columns / 16, within = k % 16;
    return first_column(k / chunk_columns) + within % 8 / 2 * 8 + tile * 4 + within / 8 * 2 +
           within % 2;
  }

  // at(row, column) is a weight, or zero.
  template <Adjacent adjacent, class At>
  __device__ void load(Stage& stage, At at) {
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      load_fragments<adjacent>(
          stage, [&](int row, int k) { return at(i * 16 + row, column(k)); }, a[i]);
    }
  }

  // This warp's part for one pass, once it is there: row(n) is where sequence n's exchanged row of
  // `width` columns starts, or null for zeros.
  template <class Row>
  __device__ void multiply(Row row, int width, PartRow (*part)[rows]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, member = lane % 4;
    Words<16> x[tiles][chunks] = {};
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      const bf16* from = row(tile * tile_sequences + group);
      RONDO_UNROLL_ALL
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const int at = first_column(chunk) + 8 * member;
        if (from && at < width) x[tile][chunk] = load_relaxed<16>(from + at);
      }
    }
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) {
      RONDO_UNROLL_ALL
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (is_there(x[tile][chunk])) continue;
        const bf16* from = row(tile * tile_sequences + group) + first_column(chunk) + 8 * member;
        poll_until([&] {
          x[tile][chunk] = load_relaxed<16>(from);
          return is_there(x[tile][chunk]);
        });
      }
    }
    __syncwarp();
    RONDO_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile) multiply_tile(x[tile], part[tile], group, member);
  }

 private:
  __device__ void multiply_tile(const Words<16> (&x)[chunks], PartRow* part, int group,
                                int member) const {
    float sum[row_tiles][4] = {};
    RONDO_UNROLL_ALL
    for (int k = 0; k < 2 * chunks; ++k) {
      const uint32_t b[2] = {x[k / 2].w[k % 2 * 2], x[k / 2].w[k % 2 * 2 + 1]};
      RONDO_UNROLL_ALL
      for (int i = 0; i < row_tiles; ++i) mma_m16n8k16(sum[i], a[i][k], b);
    }
    RONDO_UNROLL_ALL
    for (int i = 0; i < row_tiles; ++i) {
      RONDO_UNROLL_ALL
      for (int j = 0; j < 4; ++j) {
        part[i * 16 + group + j / 2 * 8][2 * member + j % 2] = sum[i][j];
      }
    }
  }
};

// ---- sums over the cluster ----

template <class P>
struct Shared {
  Stage stages[warps];
  PartRow part[warps][P::tiles][P::rows];
  // From each block, the sums of this block's rows; twice, so that one barrier per pass is enough.
  // The odd width spreads rows over banks.
  float inbox[2][P::blocks][P::block_rows][P::pass_sequences + 1];
};

// Adds up the warps' parts, and hands each block its rows.
template <class P>
__device__ void send_sums(Shared<P>& s, int buffer) {
  __syncthreads();
  const auto rank = static_cast<int>(cluster_rank());
  static_assert(P::rows * P::pass_sequences % threads == 0);
  RONDO_UNROLL(2)
  for (int turn = 0; turn < P::rows * P::pass_sequences / threads; ++turn) {
    const int i = turn * threads + static_cast<int>(threadIdx.x);
    const int n = i % P::pass_sequences, row = i / P::pass_sequences;
    float sum = 0;
    RONDO_UNROLL_ALL
    for (int warp = 0; warp < warps; ++warp) {
      sum += s.part[warp][n / tile_sequences][row][n % tile_sequences];
    }
    float* mine = &s.inbox[buffer][rank][row % P::block_rows][n];
    *map_shared(mine, static_cast<unsigned>(row / P::block_rows)) = sum;
  }
  cluster_sync();
}

// The sum of one of this block's rows for sequence n of the pass, over the blocks in order.
template <class P>
__device__ float received(const Shared<P>& s, int buffer, int row, int n) {
  float sum = 0;
  RONDO_UNROLL_ALL
  for (int from = 0; from < P::blocks; ++from) sum += s.inbox[buffer][from][row][n];
  return sum;
}

// ---- places ----

// A thread's cell, and its first sequence of a round of passes, in which each thread has one turn;
// -1 for threads without a cell. Cells from H up to `exchanged` are announced as zeros, and are not
// `real`.
template <int cells, int pass>
struct Place {
  static constexpr int round = threads / cells;
  static_assert(round % pass == 0);
  int64_t d, unit;
  int cell, sequence;
  bool real;

  __device__ Place(int64_t H, int64_t exchanged)
      : d(blockIdx.y),
        unit(int64_t{blockIdx.x} * cells + static_cast<int>(threadIdx.x) % cells),
        cell(static_cast<int>(threadIdx.x) % cells),
        sequence(static_cast<int>(threadIdx.x) / cells),
        real(unit < H) {
    if (unit >= exchanged) sequence = -1;
  }
  __device__ bool has_cell() const { return real; }
  __device__ int64_t sequence_of(int64_t first) const {
    const int within = sequence - static_cast<int>(first % round);
    return sequence >= 0 && within >= 0 && within < pass ? first + within : -1;
  }
};

// The first cell of the thread's cluster.
template <int cells>
__device__ int64_t first_cell() {
  return (int64_t{blockIdx.x} - cluster_rank()) * cells;
}

// ---- hosts ----

// All clusters of both directions must be resident at once.
inline LaunchConfig configuration(const char* name, const LstmDims& dims, int blocks, int cells,
                                  size_t shared_bytes) {
  const unsigned clusters = blocks_for(lstm_exchanged_cells(dims.hidden), blocks * cells);
  return {
      .kernel = name,
      .grid = {clusters * static_cast<unsigned>(blocks), static_cast<unsigned>(dims.directions)},
      .block = {threads},
      .shared_bytes = shared_bytes,
      .cluster = static_cast<unsigned>(blocks),
      .cooperative = true};
}

template <class Kernel>
bool fits(const LaunchConfig& config, Kernel kernel) {
  return static_cast<int64_t>(config.grid.count() / config.cluster) <=
         resident_clusters(config, kernel);
}

}  // namespace grid_cluster
}  // namespace rondo::RONDO_GPU
