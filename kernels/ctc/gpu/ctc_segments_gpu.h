// The fast lattice in segments: where its columns take too much memory, and for labels that one
// block does not hold.
//
// A block per sequence, direction and strip (1024 pairs of a blank and a label). In the first half,
// `lattice_pass`, a direction keeps its column at the head of every segment of frames alone. In the
// second, `lattice_through`, half of a block's warps make the other direction's columns again,
// segment by segment, the last one first, and put them into a ring; the other half walks through
// them a little later. So there are still T + O(segment) dependent steps, half of the frames being
// walked twice at the same time.
//
// Strips follow each other as warps do, by a launch instead of a barrier: in launch k, strip i of
// the flow walks span k - i, which is some segments. What one strip tells the next is kept for all
// chunks of a half, because the second half makes columns again. No block waits for another.
//
// The ring. Ticks are separated by barriers; in a tick every warp does a chunk. Of W warps, warp w
// of the walker does its chunk c at tick apart + c + w, warp w of those who make columns its chunk
// at W - 1 - w ticks after the first. Segments have C chunks; the first has n0 <= C and may end
// with an incomplete one. At chunk c the walker loads columns of frames up to 2 chunks ahead, of
// segment i from c = n0 + (i - 1) C - 2 on; they are complete after tick n0 + i C - 1 + W - 1 - w.
// apart = C + W + 1 suffices for all w. A column is overwritten `ring` frames of the walk ahead,
// and was read by then if ring >= (2 C + 2 W + 1) chunks: CtcGpuWorkspace::size_segments().
// For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_walker_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// One sequence in one direction and strip.
template <int P, int warps, bool across, class Emissions>
struct Segments {
  using W = Walker<P, warps, across, false, Emissions>;
  using Shared = typename W::Shared;
  static constexpr bool with_grad = std::is_same_v<Emissions, StoredEmissions>;
  static constexpr int chunk_frames = W::chunk_frames;

  const LatticeArgs<Emissions>& a;
  Shared& s;
  const int32_t n;
  const int frames, labels, strip;
  const bool up;  // the direction of the walk
  const int block_warps;
  const CtcSegments& sizes = a.work.segments;

  // ---- where things are ----

  __device__ int strips() const { return labels / (32 * P * block_warps) + 1; }
  // Frames of a direction before the middle.
  __device__ int half(bool of_up) const {
    if (!with_grad) return frames;
    return of_up ? frames / 2 : frames - frames / 2;
  }
  __device__ int segments_of(int count) const { return (count + sizes.frames - 1) / sizes.frames; }
  // The span that this strip walks in launch `tick`; negative, or past the last: none.
  __device__ int span_at(int tick) const { return tick - (up ? strip : strips() - 1 - strip); }
  __device__ int64_t direction(bool of_up) const { return int64_t{n} * 2 + (of_up ? 0 : 1); }
  __device__ ColumnPlace heads(const W& w, bool of_up) const {
    return {a.work.heads + direction(of_up) * a.work.heads_per_direction * a.work.column_words,
            a.work.column_words,
            w.warp,
            P,
            w.used_lanes(),
            false};
  }
  __device__ float* ring() const {
    return a.work.ring + direction(up) * sizes.ring * a.work.column_words;
  }
  // From strip `lower` to the next or back, from chunk `chunk` on.
  __device__ CtcSeam* border(int which_half, bool of_up, int lower, int64_t chunk) const {
    const int64_t borders = a.work.tiling.strips - 1;
    return a.work.seams[which_half] + (direction(of_up) * borders + lower) * a.work.seam_chunks +
           chunk;
  }
  __device__ void set_borders(W& w, int which_half, bool of_up, int64_t chunk, bool writes) const {
    if constexpr (across) {
      const bool is_first = strip == (of_up ? 0 : strips() - 1);
      const bool is_last = strip == (of_up ? strips() - 1 : 0);
      const int before = of_up ? strip - 1 : strip, behind = of_up ? strip : strip - 1;
      w.border_in = is_first ? nullptr : border(which_half, of_up, before, chunk);
      w.border_out = is_last || !writes ? nullptr : border(which_half, of_up, behind, chunk);
    }
  }
  __device__ W walker(int index, float* columns) const {
    return W(a, s, n, frames, labels, block_warps, block_warps * strips(), index,
             strip * block_warps, columns);
  }
  static __device__ int chunks_of(int count) { return (count + chunk_frames - 1) / chunk_frames; }

  // ---- the first half; without a gradient, all frames ----

  __device__ void pass(int tick, int needed) const {
    const int total = half(up), span = span_at(tick), span_frames = sizes.span * sizes.frames;
    const int from = span * span_frames;
    if (strip >= strips() || span < 0 || (span > 0 && from >= total)) return;
    // Its columns are the heads alone, which it stores by itself.
    W w = walker(static_cast<int>(threadIdx.x) / 32, a.work.heads);
    up ? w.template start<true>(needed) : w.template start<false>(needed);
    const ColumnPlace heads_here = heads(w, up);
    if (span > 0) heads_here.load(with_grad ? span * sizes.span : 0, w.tile);
    const int64_t seam = int64_t{with_grad ? span : span % 2} * sizes.span * sizes.chunks;
    set_borders(w, 0, up, seam, true);
    const int count = smaller(span_frames, total - from), chunks = chunks_of(count);
    up ? w.template prime<true, Phase::pass>(from, count)
       : w.template prime<false, Phase::pass>(frames - 1 - from, count);
    for (int t = 0; t < chunks + block_warps - 1; ++t) {
      const int c = t - w.turn(up);
      if (c >= 0 && c < chunks) {
        if (with_grad && c % sizes.chunks == 0) {
          heads_here.store(span * sizes.span + c / sizes.chunks, w.tile);
        }
        up ? w.template chunk<true, Phase::pass>(c) : w.template chunk<false, Phase::pass>(c);
      }
      __syncthreads();
    }
    heads_here.store(with_grad ? segments_of(from + count) : 0, w.tile);
  }

  // ---- the second half ----

  // The walk of a span through the other direction's segments [first, end), in its order: the
  // first of all may be shorter.
  struct Span {
    int total;  // frames of the walk in all
    int first, end;
    int from, count;  // frames of the walk
    int first_chunks;
  };
  __device__ bool find_span(int tick, Span& x) const {
    x.total = half(!up);
    const int span = span_at(tick), segments = segments_of(x.total);
    x.first = span * sizes.span;
    if (strip >= strips() || span < 0 || x.first >= segments) return false;
    x.end = smaller(x.first + sizes.span, segments);
    const int shortest = x.total - (segments - 1) * sizes.frames;
    const auto begin_of = [&](int i) { return i == 0 ? 0 : shortest + (i - 1) * sizes.frames; };
    x.from = begin_of(x.first);
    x.count = begin_of(x.end) - x.from;
    x.first_chunks = chunks_of(x.first == 0 ? shortest : sizes.frames);
    return true;
  }

  // Chunk x of the columns to be made again; segment i of the walk is the other direction's
  // segments - 1 - i.
  __device__ void again_at(W& w, const ColumnPlace& heads_there, const Span& span, int x) const {
    const int behind = x - span.first_chunks;
    const int i = behind < 0 ? span.first : span.first + 1 + behind / sizes.chunks;
    const int c = behind < 0 ? x : behind % sizes.chunks;
    if (i >= span.end) return;
    if (c == 0) {
      const int segment = segments_of(span.total) - 1 - i, from = segment * sizes.frames;
      const int count = smaller(sizes.frames, span.total - from);
      // Loads run on from one whole segment to the next.
      const bool goes_on = w.after >= 0 && w.count == sizes.frames;
      const auto frame = [&](int k) { return up ? frames - 1 - k : k; };
      heads_there.load(segment, w.tile);
      set_borders(w, 0, !up, int64_t{segment} * sizes.chunks, false);
      w.after = i + 1 < span.end ? frame(from - sizes.frames) : -1;
      w.ring_begin = from;
      w.seams_before = x;
      if (goes_on) {
        w.begin = frame(from);
        w.count = count;
      } else if (up) {
        w.template prime<false, Phase::again>(frame(from), count);
      } else {
        w.template prime<true, Phase::again>(frame(from), count);
      }
    }
    up ? w.template chunk<false, Phase::again>(c) : w.template chunk<true, Phase::again>(c);
  }

  __device__ void through(int tick, int needed) const {
    Span span;
    if (!find_span(tick, span)) return;
    const int index = static_cast<int>(threadIdx.x) / 32;
    const bool walks = index < block_warps, direction_up = walks ? up : !up;
    W w = walker(walks ? index : index - block_warps, ring());
    direction_up ? w.template start<true>(needed) : w.template start<false>(needed);
    const ColumnPlace heads_of_mine = heads(w, direction_up);
    w.ring_mask = sizes.ring - 1;
    const int own_end = segments_of(half(up));
    if (walks) {
      heads_of_mine.load(own_end, w.tile);
      w.z_exponent = a.work.z_exponent[n];
      w.ring_begin = span.total - 1 - span.from;
      set_borders(w, 1, up, int64_t{span.first} * sizes.chunks, true);
    }
    const int apart = sizes.chunks + block_warps + 1, chunks = chunks_of(span.count);
    for (int t = 0; t < apart + chunks + block_warps - 1; ++t) {
      const int c = t - w.turn(direction_up) - (walks ? apart : 0);
      if (walks) {
        if (c >= 0 && c < chunks) walk(w, span, c);
      } else if (c >= 0) {
        again_at(w, heads_of_mine, span, c);
      }
      __syncthreads();
    }
    if (across && walks) heads_of_mine.store(own_end, w.tile);
  }

  __device__ void walk(W& w, const Span& span, int c) const {
    const int middle = frames / 2;
    if (c == 0) {
      up ? w.template prime<true, Phase::through>(middle + span.from, span.count)
         : w.template prime<false, Phase::through>(middle - 1 - span.from, span.count);
    }
    up ? w.template chunk<true, Phase::through>(c) : w.template chunk<false, Phase::through>(c);
  }
};

// A column, read state by state.
struct ColumnStates {
  const float* column;
  int pairs;

  struct State {
    float b, l;
    int exponent;
  };
  // Of a direction's heads.
  static __device__ ColumnStates head(const CtcGpuWorkspace& work, int32_t n, bool up,
                                      int64_t index) {
    const int64_t direction = int64_t{n} * 2 + (up ? 0 : 1);
    return {work.heads + (direction * work.heads_per_direction + index) * work.column_words,
            work.tiling.pairs};
  }
  // Of a frame, where columns are kept for all.
  static __device__ ColumnStates of_frame(const LossArgs& a, int32_t n, int frame) {
    const int64_t row = a.layout.row_offsets[frame] + n;
    return {a.work.columns + row * a.work.column_words, a.work.tiling.pairs};
  }
  // Before the first frame: alpha is in the first blank.
  static __device__ ColumnStates before_all() { return {nullptr, 0}; }
  __device__ State at(int pair) const {
    if (!column) return {pair == 0 ? 1.0f : 0.0f, 0, 0};
    const float* warp = column + pair / (32 * pairs) * (32 * (2 * pairs + 1));
    const int of_vector = pairs == 1 ? 1 : 2, lane = pair / pairs % 32;
    const int word = 2 * (of_vector * (32 * (pair % pairs / of_vector) + lane) + pair % of_vector);
    return {warp[word], warp[word + 1],
            *reinterpret_cast<const int32_t*>(warp + 64 * pairs + lane)};
  }
};

// alpha one frame before the middle meets beta in the middle: the exponent of the largest term.
__device__ inline int meeting_exponent(const LossArgs& a, int32_t n, int frames, int labels) {
  const int middle = frames / 2;
  const auto last_column = [&](bool up) {
    if (a.work.in_segments) {
      const int walked = up ? middle : frames - middle, segment = a.work.segments.frames;
      return ColumnStates::head(a.work, n, up, (walked + segment - 1) / segment);
    }
    if (!up) return ColumnStates::of_frame(a, n, middle);
    return middle > 0 ? ColumnStates::of_frame(a, n, middle - 1) : ColumnStates::before_all();
  };
  const ColumnStates alpha = last_column(true), beta = last_column(false);
  const int32_t* label = a.labels + a.label_offsets[n];
  int top = no_exponent;
  for (int i = static_cast<int>(threadIdx.x); i <= labels; i += static_cast<int>(blockDim.x)) {
    const auto from = alpha.at(i), to = beta.at(i);
    const auto meet = [&](float x, int scale, float y) {
      top = larger(top, product_exponent(x, scale, y, to.exponent));
    };
    meet(from.b, from.exponent, to.b);
    meet(from.b, from.exponent, to.l);
    meet(from.l, from.exponent, to.l);
    if (i == 0) continue;
    const auto before = alpha.at(i - 1);
    meet(before.l, before.exponent, to.b);
    if (i < labels && label[i] != label[i - 1]) meet(before.l, before.exponent, to.l);
  }
  return top;
}

}  // namespace
}  // namespace rondo::RONDO_GPU
