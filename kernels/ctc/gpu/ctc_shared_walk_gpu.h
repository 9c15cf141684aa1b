// A walker, its loader and its ender (ctc_stage_gpu.h): how they go through the halves of a
// lattice. For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_walker_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// One warp of the three, in one half.
template <class W, bool up, Phase phase>
struct SharedWalk {
  static constexpr int P = W::pairs, chunk_frames = W::chunk_frames;
  using Copies = StageCopies<P, up, has_posteriors<phase>>;
  W& w;
  Stage<P>& stage = w.s.frames.of[W::wide ? w.local_warp : up ? 0 : 1];

  // `chunks` of the longer direction: warps of a block are through together. Walkers of a direction
  // follow each other, each with its helpers, a chunk behind the one before.
  __device__ void run(int chunks) {
    const int turn = W::wide ? w.turn(up) : 0;
    for (int i = 0; i < turn; ++i) begin_tick();
    share(chunks + 1);  // the ender is one behind
    if constexpr (W::wide) {
      for (int i = turn + 1; i < w.block_warps; ++i) begin_tick();
    }
  }
  // What a warp that has no part in it does while others run(): `walkers` of them.
  static __device__ void look_on(int chunks, int walkers) {
    for (int i = 0; i < chunks + walkers; ++i) begin_tick();
  }

 private:
  __device__ void share(int ticks) {
    if (w.role == Role::walker) {
      walk(ticks);
    } else if (w.role == Role::loader) {
      load(ticks);
    } else {
      end(ticks);
    }
  }

  // All warps of the block begin a tick together, whatever they do in it.
  static __device__ void begin_tick() { __syncthreads(); }

  __device__ int chunk_count() const { return (w.count + chunk_frames - 1) / chunk_frames; }
  __device__ bool lacks(int k) const { return k < w.skipped || k >= w.count; }
  // chunk(whole, c) for all chunks in turn. Only the first one, before the middle, or the last one,
  // after it, may lack frames.
  template <class Chunk>
  __device__ void for_chunks(Chunk chunk) const {
    int c = 0;
    if (w.skipped > 0) chunk(std::false_type{}, c++);
    for (; (c + 1) * chunk_frames <= w.count; ++c) chunk(std::true_type{}, c);
    if (c * chunk_frames < w.count) chunk(std::false_type{}, c);
  }

  // ---- the walker ----

  __device__ void walk(int ticks) {
    for_chunks([&]<bool whole>(std::bool_constant<whole>, int c) {
      begin_tick();
      walk_chunk<whole>(c);
    });
    for (int t = chunk_count(); t < ticks; ++t) begin_tick();
  }
  template <bool whole>
  __device__ void walk_chunk(int c) {
    auto& walked = stage.walked[c & 1];
    const int slot = c % stage_slots, k0 = c * chunk_frames;
    Staged<P> values[2];
    values[0].read(stage, slot, 0);
    Inflow inflow;
    NearestPair seam[chunk_frames];  // read at once: no load is moved before the stores of a frame
    if constexpr (W::wide) {
      const CtcSeam* in = w.template seam_in<up>(c);
      if (in) inflow = {in->exponent, in->top};
      RONDO_UNROLL(ctc_most_chunk)
      for (int f = 0; f < chunk_frames; ++f) seam[f] = W::template nearest<up>(in, f);
    }
    w.template clear_before<up>(larger(k0, w.skipped));
    w.tile.template scale<up>(inflow);
    float out = 0;
    stage.exponent[c & 1][w.lane] = w.tile.exponent;
    RONDO_UNROLL(chunk_frames)
    for (int f = 0; f < chunk_frames; ++f) {
      if (f + 1 < chunk_frames) values[(f + 1) % 2].read(stage, slot, f + 1);
      if (!whole && lacks(k0 + f)) continue;
      const Staged<P>& v = values[f % 2];
      if constexpr (W::wide) out = fmaxf(out, w.template pass_on<up>(c, f));
      const Sums<P> u = w.template sums<up>(seam[f]);
      if constexpr (has_posteriors<phase>) put(walked[f], u);
      w.tile.template emit<up>(u, v.y.at, v.blank);
      if constexpr (stores<phase>) put(walked[f], w.tile);
    }
    if constexpr (W::wide) w.template end_seam<up>(c, out);
  }

  // ---- the loader ----

  __device__ void load(int ticks) {
    const Copies copies{
        stage,   w.a.layout.row_offsets, w.begin, w.skipped, w.a.emissions, w.emissions, w.columns,
        w.count, border_from(),          border()};
    const int chunks = chunk_count();
    if (chunks > 0) copies.begin();
    int t = 0;
    for (; t < chunks; ++t) {
      copies.wait();
      begin_tick();
      copies.next(t);
    }
    copies.wait();
    for (; t < ticks; ++t) begin_tick();
    cp_async_wait<0>();
  }

  __device__ const CtcSeam* border_from() const {
    if constexpr (W::across) return w.template follows_another_block<up>() ? w.border_in : nullptr;
    return nullptr;
  }
  __device__ CtcSeam* border() const {
    if constexpr (W::across) return w.s.frames.border;
    return nullptr;
  }

  // ---- the ender ----

  __device__ void end(int ticks) {
    begin_tick();
    for_chunks([&]<bool whole>(std::bool_constant<whole>, int c) {
      begin_tick();
      const auto row = stage_rows(stage, c);
      if constexpr (has_posteriors<phase>) {
        end_posteriors<whole>(c, row);
      } else {
        end_columns<whole>(c, row);
      }
      if constexpr (W::across) end_border(c);
    });
    for (int t = chunk_count() + 1; t < ticks; ++t) begin_tick();
    if constexpr (has_posteriors<phase>) {
      __syncwarp();
      sum_posteriors(chunk_count() - 1);
    }
  }
  // The walker's states of chunk c become columns.
  template <bool whole>
  __device__ void end_columns(int c, const StageRows<P>& row) const {
    RONDO_UNROLL(chunk_frames)
    for (int f = 0; f < chunk_frames; ++f) {
      if (!whole && lacks(c * chunk_frames + f)) continue;
      StateWords<P> words[StateWords<P>::vectors];
      RONDO_UNROLL(P)
      for (int i = 0; i < StateWords<P>::vectors; ++i) words[i] = stage.walked[c & 1][f][i][w.lane];
      w.columns.template store_words<P>(row.at[f], words);
    }
    w.columns.store_exponent(row.at[chunk_frames - 1], stage.exponent[c & 1][w.lane]);
  }
  // What the walker has left for the next block.
  __device__ void end_border(int c) const {
    const bool last = w.local_warp == (up ? w.block_warps - 1 : 0);
    if (!last || !w.border_out || w.lane >= seam_words) return;
    reinterpret_cast<int32_t*>(&w.border_out[c])[w.lane] =
        reinterpret_cast<const int32_t*>(&w.template seam<up>(w.local_warp, c))[w.lane];
  }
  // The walker's sums of chunk c, times the other direction's states.
  template <bool whole>
  __device__ void end_posteriors(int c, const StageRows<P>& row) const {
    const int odd = c & 1;
    const auto &walked = stage.walked[odd], &other = stage.other[odd];
    const PosteriorFactor factor =
        w.posterior_factor(stage.exponent[odd][w.lane], stage.other_exponent[odd][w.lane]);
    // A chunk's sums in the next one's tick, where nothing waits for them.
    sum_posteriors(c - 1);
    // Read a frame ahead: no load is moved before the stores of an earlier frame.
    Sums<P> u[2], v[2];
    get(walked[0], u[0]);
    get(other[0], v[0]);
    __syncwarp();
    RONDO_UNROLL(chunk_frames)
    for (int f = 0; f < chunk_frames; ++f) {
      if (f + 1 < chunk_frames) {
        get(walked[f + 1], u[(f + 1) % 2]);
        get(other[f + 1], v[(f + 1) % 2]);
      }
      if (!whole && lacks(c * chunk_frames + f)) continue;
      stage.sums[f][w.lane] = w.posterior(u[f % 2], v[f % 2], factor, row.at[f]);
    }
  }
  // The posteriors of chunk c are summed. Before the first one, what is read is not written.
  __device__ void sum_posteriors(int c) const {
    const int f = smaller(w.lane % 8, chunk_frames - 1);
    const int32_t own_row = stage.row[c & (row_slots - 1)][f];
    w.write_sum(c * chunk_frames + w.lane % 8, own_row, w.sum_lanes(stage.sums));
  }

  // ---- states in shared memory ----

  template <class States>
  __device__ void put(StateWords<P> (&to)[StateWords<P>::vectors][32], const States& from) const {
    RONDO_UNROLL(P)
    for (int i = 0; i < StateWords<P>::vectors; ++i) {
      StateWords<P> words;
      words.put(i, from);
      to[i][w.lane] = words;
    }
  }
  __device__ void get(const StateWords<P> (&from)[StateWords<P>::vectors][32], Sums<P>& to) const {
    RONDO_UNROLL(P)
    for (int i = 0; i < StateWords<P>::vectors; ++i) from[i][w.lane].get(i, to);
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
