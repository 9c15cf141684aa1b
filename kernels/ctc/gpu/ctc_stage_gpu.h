// How a lattice of one warp per direction shares a direction's work among three warps: a walker,
// and two that do all that touches memory, through shared memory, chunks of frames before and
// after.
//
// The walker's chain of a frame (a shuffle, a product, two sums) leaves no room for addresses,
// copies and posteriors: they would be more than half of its instructions. In tick t the walker
// does chunk t. The loader begins copies of the emissions of chunk t + 2 and of the other
// direction's columns of chunk t. The ender does chunk t - 1: before the middle the states that
// the walker has left become columns in memory; after it, the walker's sums before the emission,
// times the other direction's states, are posteriors. A barrier of the block separates ticks.
//
// Registers cannot hold what is on its way. A multiprocessor's warp has six scoreboards for all its
// loads, and whatever lives from one turn of a loop to the next may be copied from register to
// register at its end: either way a load is waited for soon after it has begun, which nobody
// hides. Copies into shared memory (cp.async) are waited for in groups.
// For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_columns_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int stage_slots = 3;  // chunks of emissions: two ahead, and the walker's
constexpr int row_slots = 8;    // chunks whose rows are known: four ahead, and those in use
constexpr int seam_words = sizeof(CtcSeam) / sizeof(int32_t);
static_assert(seam_words <= 32);  // a lane each

// What warp of a direction's three a warp is. A multiprocessor deals warps to its four schedulers
// in turn: so each walker has one to itself.
enum class Role : uint8_t { ender, walker, loader };
inline constexpr int role_count = 3;

// A direction's. Lane k of one warp leaves values for lane k of another, but for `row`, `blank` and
// `sums`, which all lanes read.
template <int P>
struct alignas(16) Stage {
  static constexpr int frames = ctc_chunk_frames(P);
  using States = StateWords<P>[frames][StateWords<P>::vectors][32];
  PairWords<P> y[stage_slots][frames][32];
  States other[2];                // the other direction's columns; [odd or even chunk]
  States walked[2];               // states, or sums
  int32_t other_exponent[2][32];  // of all frames of the chunk
  int32_t exponent[2][32];
  alignas(16) int32_t row[row_slots][ctc_most_chunk];  // without the sequence's place in it
  float blank[stage_slots][ctc_most_chunk];
  CtcPartial sums[ctc_most_chunk][33];  // the ender's: [frame][lane]
};

template <int P, int count>
struct Stages {
  Stage<P> of[count];
};
// Of a block whose first warp takes states from another block: those of a chunk and two ahead.
template <int P, int count>
struct StagesAcross : Stages<P, count> {
  CtcSeam border[stage_slots];
};

// A frame's values for the walker, in registers.
template <int P>
struct Staged {
  PairWords<P> y;
  float blank;

  __device__ void read(const Stage<P>& from, int slot, int f) {
    y = from.y[slot][f][threadIdx.x % 32];
    blank = from.blank[slot][f];
  }
};

// The rows of a chunk's frames.
template <int P>
struct StageRows {
  int32_t at[Stage<P>::frames];
};
template <int P>
__device__ StageRows<P> stage_rows(const Stage<P>& s, int c) {
  StageRows<P> r;
  RONDO_UNROLL(ctc_most_chunk)
  for (int f = 0; f < Stage<P>::frames; ++f) r.at[f] = s.row[c & (row_slots - 1)][f];
  return r;
}

// What the loader copies for one direction's walk through `count` frames from frame `first` on.
template <int P, bool up, bool with_columns>
struct StageCopies {
  static constexpr int frames = ctc_chunk_frames(P);
  Stage<P>& s;
  const int32_t* offsets;  // of all frames
  const int first;         // frame
  const int skipped;       // frames before the first one, which fill its chunk
  const StoredEmissions& emissions;
  const typename StoredEmissions::Lane<P>& lane_emissions;
  const ColumnPlace& columns;
  const int count;
  const CtcSeam* border_from;  // of all chunks; null: states come from no other block
  CtcSeam* border;             // [stage_slots]

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ int chunks() const { return (count + frames - 1) / frames; }
  // Frames that a chunk lacks are the nearest one: a branch would keep other work waiting.
  __device__ const int32_t* offset(int k) const {
    const int at = larger(smaller(k, count - 1), skipped);
    return in_row(offsets, up ? first + at : first - at, sizeof(int32_t));
  }

  // Before the first tick.
  __device__ void begin() const {
    const int f = lane() % ctc_most_chunk, c = lane() / ctc_most_chunk;
    if (f < frames) s.row[c][f] = *offset(c * frames + f);
    __syncwarp();
    copy_emissions(0);
    cp_async_commit();
    copy_emissions(1);
    cp_async_commit();
  }
  // What chunk t needs, and the columns of chunk t - 1, have come; other lanes know after a
  // barrier.
  static __device__ void wait() { cp_async_wait<1>(); }
  // In tick t, after wait() and the barrier.
  __device__ void next(int t) const {
    if (t >= chunks()) return;
    if constexpr (with_columns) {
      copy_columns(t);
      cp_async_commit();  // apart: they are waited for a tick earlier
    }
    copy_emissions(t + 2);
    const int later = t + 4;
    if (lane() < frames) {
      cp_async<4>(&s.row[later & (row_slots - 1)][lane()], offset(later * frames + lane()));
    }
    cp_async_commit();
  }

 private:
  __device__ void copy_emissions(int c) const {
    if (c >= chunks()) return;  // a posterior may take the place of what would be read
    const int slot = c % stage_slots;
    const auto row = stage_rows(s, c);
    RONDO_UNROLL(frames)
    for (int f = 0; f < frames; ++f) {
      cp_async<4 * P>(&s.y[slot][f][lane()],
                      in_row(lane_emissions.y, row.at[f], emissions.row_bytes));
    }
    if (lane() < frames) {
      const int32_t own = s.row[c & (row_slots - 1)][lane()];
      cp_async<4>(&s.blank[slot][lane()], &emissions.rows[lane_emissions.n + own].blank);
    }
    if (border_from) copy_border(c, slot);
  }
  __device__ void copy_border(int c, int slot) const {
    if (lane() >= seam_words) return;
    cp_async<4>(reinterpret_cast<int32_t*>(&border[slot]) + lane(),
                reinterpret_cast<const int32_t*>(&border_from[c]) + lane());
  }
  __device__ void copy_columns(int c) const {
    const auto row = stage_rows(s, c);
    RONDO_UNROLL(frames)
    for (int f = 0; f < frames; ++f) columns.copy<P>(row.at[f], s.other[c & 1][f]);
    columns.copy_exponent(row.at[0], s.other_exponent[c & 1][lane()]);
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
