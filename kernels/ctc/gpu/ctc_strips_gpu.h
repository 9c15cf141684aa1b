// The fast lattice with stages where one block does not hold those of all walkers: 512 labels to
// 1023. Either direction has two blocks, strips of up to four walkers, and strips follow each other
// as warps do, by a launch instead of a barrier, as they do in ctc_segments_gpu.h.
//
// A half of the frames is three spans of whole chunks, and takes four launches: in launch k, the
// i-th strip of the flow walks span k - i. What it tells the next, the border, is kept for a half.
// A strip goes on from its last column: in the first half that is stored in any case; in the
// second, the frame's column of the other direction has just been read, and makes room.
//
// The aim is few frames without work in launches that have one of the strips alone, and few
// launches: with spans of a third, four thirds of the frames are waited for, and more spans would
// take as much for their launches, each of which begins with copies that nobody hides.
// For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_shared_walk_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

inline constexpr int strip_spans = 3, strip_launches = strip_spans + 1;

// One direction of a sequence in one of its two strips.
struct Strip {
  static constexpr int P = 4;
  using W = Walker<P, ctc_staged_warps, true, true, StoredEmissions>;
  using Shared = typename W::Shared;
  static constexpr int threads = 32 * ctc_staged_warps * role_count;
  static constexpr int chunk_frames = W::chunk_frames;

  const LatticeArgs<StoredEmissions>& a;
  Shared& s;
  const int32_t n;
  const int frames, labels;
  const int needed;  // frames
  const int strip;   // 0 has the first labels
  // The second strip may have a warp less: one of each role has nothing to do.
  const int most_warps = static_cast<int>(blockDim.x) / (32 * role_count);
  const int all_warps = a.work.tiling.warps;
  const int block_warps = strip == 0 ? most_warps : all_warps - most_warps;
  const int index = static_cast<int>(threadIdx.x) / 32;
  const int middle = frames / 2, rest = frames - middle;

  template <bool up>
  __device__ void first_half(int launch) const {
    walk<up, Phase::store>(launch, up ? 0 : frames - 1, up ? middle : rest);
  }
  template <bool up>
  __device__ void second_half(int launch) const {
    walk<up, Phase::posteriors>(launch, up ? middle : middle - 1, up ? rest : middle);
  }

 private:
  static __device__ int chunks_of(int count) { return (count + chunk_frames - 1) / chunk_frames; }

  // `from`: the half's first frame of the direction, `total`: its frames.
  template <bool up, Phase phase>
  __device__ void walk(int launch, int from, int total) const {
    const int span = launch - (up ? strip : 1 - strip), chunks = chunks_of(total);
    const int span_chunks = larger(1, (chunks + strip_spans - 1) / strip_spans);
    const int first_chunk = span * span_chunks;
    if (span < 0 || first_chunk >= chunks) return;
    const int end_chunk = smaller(first_chunk + span_chunks, chunks);
    if (index % most_warps >= block_warps) {
      return SharedWalk<W, up, phase>::look_on(end_chunk - first_chunk, block_warps);
    }
    // The first chunk before the middle may lack frames, and the last one after it.
    const int lacking = stores<phase> ? chunks * chunk_frames - total : 0;
    const int begin = larger(first_chunk * chunk_frames - lacking, 0);
    const int end = smaller(end_chunk * chunk_frames - lacking, total);
    const auto frame = [&](int k) { return up ? from + k : from - k; };

    W w(a, s, n, frames, labels, block_warps, all_warps, index % most_warps, strip * most_warps,
        a.work.columns + n * a.work.column_words);
    w.role = static_cast<Role>(index / most_warps);
    w.template start<up>(needed);
    const bool goes_on = begin > 0 || (has_posteriors<phase> && (!up || middle > 0));
    if (goes_on) w.columns.load(a.layout.row_offsets[frame(begin - 1)], w.tile);
    if constexpr (has_posteriors<phase>) w.z_exponent = a.work.z_exponent[n];
    CtcSeam* border = a.work.border + (int64_t{n} * 2 + (up ? 0 : 1)) * a.work.border_chunks;
    const bool leads = strip == (up ? 0 : 1);
    w.border_in = leads ? nullptr : border + first_chunk;
    w.border_out = leads ? border + first_chunk : nullptr;
    w.template prime<up, phase>(frame(begin), end - begin);
    SharedWalk<W, up, phase>{w}.run(end_chunk - first_chunk);
    if constexpr (has_posteriors<phase>) {
      if (w.role == Role::walker && end < total) {
        w.columns.store(a.layout.row_offsets[frame(end - 1)], w.tile);
      }
    }
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
