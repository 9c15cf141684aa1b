// The persistent LSTM kernels over a grid of clusters: what forward and backward share; for
// lstm_grid_cluster_*.cu.
//
// A cluster owns a few cells of one direction and the rows of R (forward; backward: the columns)
// that they need, held in registers for the whole sequence. Its blocks share the columns: each
// reads its part of what all clusters announced at the step before, multiplies it by its part of
// all the cluster's rows, and stores the sums into the inboxes of the cells' blocks, by stores that
// arrive at an mbarrier there. So a block reads 1 / blocks of the operand, and waits for nothing
// but data.
//
// Between clusters there are no flags: a word of exchanged memory says itself whether it is there.
// Before the launch all words are `missing`, which no result ever is (announced() sees to that),
// every word is written once, and readers poll those that are missing. Nothing else is handed from
// block to block, so relaxed accesses are enough. (The idea is that of Lamport's registers, and of
// the "low latency" protocols of collective libraries; here memory of its own for each step takes
// the place of sequence numbers.)
//
// A step takes the sequences in passes of 8, and the warps of a block are a pipeline: some do
// nothing but products, the others, in teams, add up, send, receive, and compute cells. Pass k of a
// step belongs to team k % teams, so a thread computes the same cell of the same sequences at every
// step. A pass waits for its own words alone.
//
// Products are mma_m16n8k16 with the weights as A and 8 sequences as B. Each product warp sums over
// its own chunks of 32 columns; parts are added up in the order of warps, then of blocks: the bits
// depend on H and on the tiling, not on the sequences beside.
#pragma once

#include <type_traits>

#include "kernels/lstm/gpu/lstm_grid_cells.h"

namespace rondo::RONDO_GPU {
namespace grid_cluster {

constexpr int pass_sequences = 8;
constexpr int cell_warps = 4;
constexpr int chunk_columns = 32;  // two products deep; a lane loads 8 columns of it at once

// ---- exchanged words: two bf16 each ----

constexpr uint32_t missing = 0xffffffffu;
constexpr int missing_byte = 0xff;

// As it is announced: a pair of NaNs that looks missing becomes another pair of NaNs.
__device__ inline uint32_t announced(uint32_t pair) { return pair == missing ? 0xffff7fffu : pair; }
__device__ inline uint32_t pair_of(uint32_t low, uint32_t high) {
  return announced(low | high << 16);
}

// ---- shapes ----

// `blocks` to a cluster, which has 16 row_tiles rows: 4 row_tiles quads of them, whose sums travel
// together. Row i of tile t is number t % 4 of quad t / 4 * 16 + i. A block's quads are neighbours.
// `chunks_` of columns to each product warp.
template <int blocks_, int row_tiles_, int product_warps_, int chunks_>
struct Tiling {
  static constexpr int blocks = blocks_, row_tiles = row_tiles_, chunks = chunks_;
  static constexpr int product_warps = product_warps_;
  static constexpr int rows = 16 * row_tiles, quads = rows / 4, block_quads = quads / blocks;
  static constexpr int threads = 32 * (product_warps + cell_warps);
  // Two quads of a pass to each thread of a team.
  static constexpr int team_threads = quads * pass_sequences / 2;
  static constexpr int teams = cell_warps * 32 / team_threads;
  static_assert(teams * team_threads == cell_warps * 32 && quads % blocks == 0 && 32 % quads == 0);
  // The buffers of parts for each team, between product warps and teams, which are passes apart.
  static constexpr int part_buffers = 4 / teams;
  // Where 255 to each thread are not to be had, the product warps get what the others do not need.
  static constexpr bool shares_registers = threads > 256;
  static constexpr int product_registers = 208, cell_registers = 88;
  static_assert(!shares_registers ||
                product_registers * 32 * product_warps + cell_registers * 32 * cell_warps <=
                    65536 / threads / 8 * 8 * threads);
};

// Sums of four rows for one sequence.
struct alignas(16) Quad {
  float of_row[4];
};

// Sums of this block's quads for a pass, from each block: [sequence][quad].
template <class P>
struct Inbox {
  Quad from[P::blocks][pass_sequences * P::block_quads];
};

template <class P>
struct Shared {
  Stage stages[P::product_warps];
  Quad part[P::teams][P::part_buffers][P::product_warps][P::quads][pass_sequences];
  Inbox<P> inbox[P::teams][2];
  MBarrier summed[P::teams][P::part_buffers], taken[P::teams][P::part_buffers];
  MBarrier delivered[P::teams][2];
};

// Where a quad's sums for a sequence lie, so that neither the 8 lanes that write at once (2 quads x
// 4 sequences, as fragments have it) nor the 8 that read (8 quads, one sequence) share banks.
__device__ inline int slot(int quad, int sequence) {
  const int turned = (quad & 1) << 2 | (quad & 2) | (quad & 4) >> 2;
  return (sequence / 2 + sequence % 2 * 4) ^ turned;
}

// All threads of the block.
template <class P>
__device__ void init_mbarriers(Shared<P>& s) {
  if (threadIdx.x == 0) {
    for (int team = 0; team < P::teams; ++team) {
      for (MBarrier& b : s.summed[team]) mbarrier_init(&b, P::product_warps);
      for (MBarrier& b : s.taken[team]) mbarrier_init(&b, P::team_threads / 32);
      for (MBarrier& b : s.delivered[team]) mbarrier_init(&b, 1);
    }
  }
  cluster_sync();
}

// The n-th use of one of several buffers, and the phase of its mbarriers.
struct Turn {
  uint32_t n = 0;
  template <int buffers>
  __device__ int buffer() const {
    return static_cast<int>(n % buffers);
  }
  template <int buffers>
  __device__ uint32_t phase() const {
    return n / buffers;
  }
};

// The turns of all teams, for those who serve them all. What a team has to wait for is its own
// alone: of phases that others wait for it could miss some, and an mbarrier tells a phase from the
// one before, but not from the one before that.
template <class P>
struct TeamTurns {
  Turn of[P::teams];

  __device__ Turn next(int team) {
    Turn turn;
    RONDO_UNROLL_ALL
    for (int i = 0; i < P::teams; ++i) {
      if (i == team) turn.n = of[i].n++;
    }
    return turn;
  }
};

// ---- steps ----

// Rows of a frame: the first, and how many sequences have one.
struct Rows {
  int first, active;
};

// The steps of a direction in the order in which the kernel takes them, each with its neighbours,
// which are loaded a step ahead.
struct Walk {
  const int32_t *offsets, *active;  // by frame
  int frames, at;
  bool rising;  // in time
  Rows previous, now, next;

  __device__ Walk(const PackedView& layout, bool rises)
      : offsets(layout.row_offsets),
        active(layout.batch_sizes),
        frames(static_cast<int>(layout.extent->frames)),
        at(0),
        rising(rises),
        previous{0, 0},
        now(rows(0)),
        next(rows(1)) {}
  __device__ Rows rows(int step) const {
    if (step >= frames) return {0, 0};
    const int frame = rising ? step : frames - 1 - step;
    return {offsets[frame], active[frame]};
  }
  __device__ bool done() const { return at >= frames; }
  __device__ void advance() {
    previous = now;
    now = next;
    next = rows(++at + 1);
  }
};

// A column of an array of rows. Rows have 32-bit numbers, so that an address is one product.
template <class T>
struct Column {
  T* first;  // null: there is no such array
  uint32_t row_bytes;

  __device__ Column(T* array, int64_t row_elements, int64_t row, int64_t column)
      : first(array ? array + row * row_elements + column : nullptr),
        row_bytes(static_cast<uint32_t>(row_elements) * static_cast<uint32_t>(sizeof(T))) {}
  __device__ T* at(int row) const {
    using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
    return reinterpret_cast<T*>(reinterpret_cast<Byte*>(first) +
                                uint64_t{row_bytes} * static_cast<uint32_t>(row));
  }
};

// ---- product warps ----

template <class P>
class Products {
 public:
  // Exchanged rows have `width` columns.
  __device__ explicit Products(int width) {
    const int left = width - lane_column();
    chunks_ = left <= 0 ? 0 : (left + chunk_stride - 1) / chunk_stride;
  }

  // at(quad, row of it, column) is a weight, or zero.
  template <Adjacent adjacent, class At>
  __device__ void load_weights(Stage& stage, At at) {
    RONDO_UNROLL_ALL
    for (int i = 0; i < P::row_tiles; ++i) {
      load_fragments<adjacent>(
          stage, [&](int row, int k) { return at(i / 4 * 16 + row, i % 4, column(k)); }, a_[i]);
    }
  }

  // One pass after the other of `active` sequences. row(n) is where sequence n's exchanged row
  // lies, -1 for zeros.
  template <class Row>
  __device__ void multiply(const Column<const bf16>& exchanged, int active, Row row, Shared<P>& s,
                           TeamTurns<P>& turns) const {
    const auto source_of = [&](int first) -> Source {
      const int n = first + lane() / 4, at = n < active ? row(n) : -1;
      return {exchanged.at(at < 0 ? 0 : at), at < 0 ? 0 : chunks_};
    };
    Source from = source_of(0);
    Operand x;
    load<0, P::chunks>(from, x);
    for (int first = 0; first < active; first += pass_sequences) {
      const Source later = source_of(first + pass_sequences);
      Operand ahead;
      load<0, P::chunks>(later, ahead);
      const int team = first / pass_sequences % P::teams;
      const Turn turn = turns.next(team);
      const int buffer = turn.buffer<P::part_buffers>();
      mbarrier_wait(&s.taken[team][buffer], turn.phase<P::part_buffers>() - 1);
      await(from, x);
      multiply_pass(x, s.part[team][buffer][warp()]);
      __syncwarp();
      if (lane() == 0) mbarrier_arrive(&s.summed[team][buffer]);
      x = ahead;
      from = later;
    }
  }

  // The first column that this lane loads.
  static __device__ int lane_column() { return first_column(0) + 8 * (lane() % 4); }

 private:
  struct Operand {
    Words<16> of_chunk[P::chunks];
  };
  struct Source {
    const bf16* from;
    int chunks;  // that there are; of the others it has zeros
  };
  // Independent sums of as many products as follow each other without waiting.
  static constexpr int chains = P::row_tiles < 8 ? 2 : 1;
  // Neighbouring chunks belong to different blocks.
  static constexpr int chunk_stride = P::product_warps * P::blocks * chunk_columns;

  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int first_column(int chunk) {
    return chunk * chunk_stride +
           (warp() * P::blocks + static_cast<int>(cluster_rank())) * chunk_columns;
  }
  // The column of this warp's k-th product: ordered so that the two fragments of a chunk are 16
  // bytes in a row of memory.
  static __device__ int column(int k) {
    const int tile = k % chunk_columns / 16, within = k % 16;
    return first_column(k / chunk_columns) + within % 8 / 2 * 8 + tile * 4 + within / 8 * 2 +
           within % 2;
  }

  template <int first_chunk, int end_chunk>
  static __device__ void load(const Source& source, Operand& x) {
    RONDO_UNROLL_ALL
    for (int chunk = first_chunk; chunk < end_chunk; ++chunk) {
      x.of_chunk[chunk] = {};
      if (chunk < source.chunks) {
        x.of_chunk[chunk] = load_relaxed<16>(source.from + chunk * chunk_stride);
      }
    }
  }
  template <int first_chunk, int end_chunk>
  static __device__ bool are_there(const Operand& x) {
    uint32_t largest = 0;  // `missing`, if any is
    RONDO_UNROLL_ALL
    for (int chunk = first_chunk; chunk < end_chunk; ++chunk) {
      RONDO_UNROLL_ALL
      for (const uint32_t w : x.of_chunk[chunk].w) largest = w > largest ? w : largest;
    }
    return largest != missing;
  }
  // While nothing is there, the first chunk alone is asked for: all blocks at once would want more
  // than the second-level cache can give.
  static __device__ void await(const Source& source, Operand& x) {
    if (!are_there<0, P::chunks>(x)) {
      poll_until([&] {
        load<0, 1>(source, x);
        return are_there<0, 1>(x);
      });
      poll_until([&] {
        load<1, P::chunks>(source, x);
        return are_there<1, P::chunks>(x);
      });
    }
    __syncwarp();
  }

  __device__ void multiply_pass(const Operand& x, Quad (*part)[pass_sequences]) const {
    float sum[chains][P::row_tiles][4] = {};
    RONDO_UNROLL_ALL
    for (int k = 0; k < 2 * P::chunks; ++k) {
      const uint32_t* w = x.of_chunk[k / 2].w + k % 2 * 2;
      const uint32_t b[2] = {w[0], w[1]};
      RONDO_UNROLL_ALL
      for (int i = 0; i < P::row_tiles; ++i) mma_m16n8k16(sum[k % chains][i], a_[i][k], b);
    }
    const int group = lane() / 4, member = lane() % 4;
    RONDO_UNROLL_ALL
    for (int i = 0; i < P::row_tiles; i += 4) {
      RONDO_UNROLL_ALL
      for (int j = 0; j < 4; ++j) {
        const int quad = i / 4 * 16 + j / 2 * 8 + group;
        Quad q;
        RONDO_UNROLL_ALL
        for (int r = 0; r < 4; ++r) {
          q.of_row[r] = sum[0][i + r][j];
          if constexpr (chains == 2) q.of_row[r] += sum[1][i + r][j];
        }
        part[quad][slot(quad, 2 * member + j % 2)] = q;
      }
    }
  }

  int chunks_;  // of this lane, within a row
  uint32_t a_[P::row_tiles][2 * P::chunks][4];
};

// ---- teams ----

// A thread's place in its team. Its cell, and its sequence of the team's first pass of a step; it
// has one in every `round` after that. Cells from H up to `exchanged` are announced as zeros, and
// are not real; threads beyond have none.
template <class P, int cells>
struct Place {
  static constexpr int round = P::teams * pass_sequences;
  int64_t d, unit;
  int team, thread, sequence;
  bool real, announces;

  __device__ Place(int64_t H, int64_t exchanged)
      : d(blockIdx.y),
        team((static_cast<int>(threadIdx.x) / 32 - P::product_warps) / (P::team_threads / 32)),
        thread(static_cast<int>(threadIdx.x) % P::team_threads) {
    unit = int64_t{blockIdx.x} * cells + thread % cells;
    sequence = team * pass_sequences + thread / cells;
    real = unit < H;
    announces = unit < exchanged;
  }
  __device__ bool has_cell() const { return real; }
};

// Adds up the warps' parts of a pass, and sends each block its quads; then waits for those of this
// block. All threads of a team.
template <class P>
__device__ const Inbox<P>& exchange_sums(Shared<P>& s, int team, int thread, const Turn& turn) {
  const int buffer = turn.buffer<P::part_buffers>(), side = turn.buffer<2>();
  Inbox<P>& inbox = s.inbox[team][side];
  MBarrier* delivered = &s.delivered[team][side];
  // Two inboxes are enough. Every warp sends to every block, and not before all of its lanes have
  // read what came the turn before: who has received a whole turn may send the next.
  __syncwarp();
  if (thread == 0) mbarrier_arrive_expecting(delivered, sizeof inbox);
  mbarrier_wait(&s.summed[team][buffer], turn.phase<P::part_buffers>());
  const auto quad_of = [&](int half) { return (half * P::team_threads + thread) % P::quads; };
  const auto sequence_of = [&](int half) { return (half * P::team_threads + thread) / P::quads; };
  Words<16> sums[2];
  RONDO_UNROLL_ALL
  for (int half = 0; half < 2; ++half) {
    const int quad = quad_of(half);
    Quad sum = {};
    RONDO_UNROLL_ALL
    for (int warp = 0; warp < P::product_warps; ++warp) {
      const Quad part = s.part[team][buffer][warp][quad][slot(quad, sequence_of(half))];
      RONDO_UNROLL_ALL
      for (int r = 0; r < 4; ++r) sum.of_row[r] += part.of_row[r];
    }
    RONDO_UNROLL_ALL
    for (int r = 0; r < 4; ++r) sums[half].w[r] = __float_as_uint(sum.of_row[r]);
  }
  RONDO_UNROLL_ALL
  for (int half = 0; half < 2; ++half) {
    const int quad = quad_of(half), at = sequence_of(half) * P::block_quads + quad % P::block_quads;
    store_async(&inbox.from[cluster_rank()][at], sums[half], delivered,
                static_cast<unsigned>(quad / P::block_quads));
  }
  __syncwarp();
  if (thread % 32 == 0) mbarrier_arrive(&s.taken[team][buffer]);
  mbarrier_wait_for_stores(delivered, turn.phase<2>());
  return inbox;
}

// products() by the product warps, cells() by the teams.
template <class P, class Products, class Cells>
__device__ void divide_work(Products products, Cells cells) {
  if (threadIdx.x < 32 * P::product_warps) {
    if constexpr (P::shares_registers) take_registers<P::product_registers>();
    products();
  } else {
    if constexpr (P::shares_registers) give_registers<P::cell_registers>();
    cells();
  }
}

// The first cell of the thread's cluster.
template <int cells>
__device__ int64_t first_cell() {
  return (int64_t{blockIdx.x} - cluster_rank()) * cells;
}

// ---- hosts ----

// All clusters of both directions must be resident at once.
template <class P>
LaunchConfig configuration(const char* name, const LstmDims& dims, int cells) {
  const unsigned clusters = blocks_for(lstm_exchanged_cells(dims.hidden), P::blocks * cells);
  return {.kernel = name,
          .grid = {clusters * unsigned{P::blocks}, static_cast<unsigned>(dims.directions)},
          .block = {P::threads},
          .shared_bytes = sizeof(Shared<P>),
          .cluster = unsigned{P::blocks},
          .cooperative = true};
}

template <class Kernel>
bool fits(const LaunchConfig& config, Kernel kernel) {
  return static_cast<int64_t>(config.grid.count() / config.cluster) <=
         resident_clusters(config, kernel);
}

}  // namespace grid_cluster
}  // namespace rondo::RONDO_GPU
