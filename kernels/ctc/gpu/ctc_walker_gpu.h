// One warp of the fast lattice: how it walks through the frames.
// For the *.cu files of kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_stage_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

enum class Phase : uint8_t {
  store,       // the first half of the frames, every column stored
  posteriors,  // the second half, through the other direction's columns
  pass,        // frames of which no column is stored
  again,       // a segment of the first half once more, into the ring
  through,     // the second half, through the ring
};
template <Phase p>
constexpr bool stores = p == Phase::store || p == Phase::again;
template <Phase p>
constexpr bool staged = p == Phase::store || p == Phase::posteriors;
template <Phase p>
constexpr bool has_posteriors = p == Phase::posteriors || p == Phase::through;

// A posterior is u * first * other * rest. Where an alignment enters lanes that both directions
// have given low scales, or leaves lanes of high ones, one power of two does not hold first * rest.
// That product is 2^bits: what is negative of bits is halved between the two, so that neither
// u * first nor that times `other` leaves the range of f32 if the posterior does not; what is
// positive comes last, up to 2^100, so that an infinity never meets the 0 that has become of a
// small beta.
struct PosteriorFactor {
  float first, rest;
};

// What comes into a warp's first lane at a frame.
struct NearestPair {
  float b = 0, l = 0;
};

// `over_blocks`: the states go on in other blocks. `with_stages`: frames go through a stage.
template <int P, int warps, bool over_blocks, bool with_stages, class Emissions>
struct Walker {
  static constexpr bool across = over_blocks;
  static constexpr int pairs = P;
  static constexpr bool wide = warps > 1;
  static constexpr bool stages = with_stages;
  // A stage for each direction, or for each warp of one.
  using Frames = std::conditional_t<
      stages, std::conditional_t<across, StagesAcross<P, warps>, Stages<P, wide ? warps : 2>>,
      LaneSums<warps>>;
  using Shared = LatticeShared<warps, Frames>;
  static constexpr int chunk_frames = ctc_chunk_frames(P);
  // Frames loaded ahead. Many warps hide each other's loads, and may be short of registers: the
  // emissions say how few frames are enough.
  static constexpr int ahead = across      ? 1
                               : warps > 4 ? Emissions::few_ahead
                               : P == 4    ? 4
                                           : chunk_frames;
  static_assert(chunk_frames % ahead == 0);
  static_assert(wide || !across);

  const LatticeArgs<Emissions>& a;
  Shared& s;
  const int32_t n;
  const int frames, labels;
  const int block_warps;  // of this direction in the block
  const int all_warps;    // of the sequence
  const int lane;
  const int warp, local_warp;  // of the sequence, of the block
  const int first;             // its lane's first pair
  // Where registers are shortest.
  Tile<P, (warps > 4)> tile;
  ColumnPlace columns;
  typename Emissions::template Lane<P> emissions;
  Ahead<P> next[ahead];
  Stored<P> stored[ahead];
  int32_t rows[ahead];  // of the frames after those in `next`
  int begin = 0, count = 0;
  int z_exponent = 0;
  int skipped = 0;  // with a stage: frames that the first chunk lacks, counted in `count`
  Role role = Role::walker;
  // In segments.
  int after = -1;        // `again`: the frame to load when `count` are done
  int seams_before = 0;  // `again`: chunks of earlier segments
  int32_t ring_begin = 0, ring_mask = 0;
  const CtcSeam* border_in = nullptr;  // chunks from and for other blocks
  CtcSeam* border_out = nullptr;

  __device__ Walker(const LatticeArgs<Emissions>& args, Shared& shared_memory, int32_t sequence,
                    int length, int label_count, int warps_here, int warps_all, int index,
                    int warps_before, float* column_memory)
      : a(args),
        s(shared_memory),
        n(sequence),
        frames(length),
        labels(label_count),
        block_warps(warps_here),
        all_warps(warps_all),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(warps_before + index),
        local_warp(index),
        first((warp * 32 + lane) * P),
        columns(column_memory, args.work.column_words, warp, P, used_lanes(), stages) {}

  // That hold states.
  __device__ int used_lanes() const { return labels / P + 1 - warp * 32; }

  template <bool up>
  __device__ void start(int needed) {
    const int32_t* label = a.labels + a.label_offsets[n];
    const auto repeats_at = [&](int i) {
      return i > 0 && i < labels && label[i] == label[i - 1] ? 1 : 0;
    };
    int own = 0;  // repeats
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int i = first + j;
      own += repeats_at(i);
      const int to = up ? i : i + 1;
      tile.skip[j] = to > 0 && to < labels && label[to] != label[to - 1] ? 1.0f : 0.0f;
      tile.b[j] = i == (up ? 0 : labels) ? 1.0f : 0.0f;
      tile.l[j] = 0;
    }
    // Repeats in the warps before and, by a scan, in the lanes before.
    int others = 0;
    for (int i = lane; i < smaller(warp * 32 * P, labels); i += 32) others += repeats_at(i);
    for (int d = 16; d > 0; d /= 2) others += __shfl_xor_sync(all_lanes, others, d);
    int sum = own;
    for (int d = 1; d < 32; d *= 2) sum += from_before<P, true>(sum, d, 0);
    int repeats = others + sum - own;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int i = first + j, repeat = repeats_at(i);
      repeats += repeat;
      tile.windows.set(j, i, labels, i + repeats, repeat, frames - needed);
    }
    emissions = a.emissions.template lane<P>(label, n, first, labels);
    tile.template scale<up>({});
  }

  template <bool up>
  __device__ int frame(int k) const {
    return up ? begin + k : begin - k;
  }
  template <bool up, Phase phase>
  __device__ int32_t row_of(int k) const {
    int t = frame<up>(smaller(k, count - 1));
    if constexpr (phase == Phase::again) {
      if (k >= count && after >= 0) {
        t = up ? smaller(after + k - count, frames - 1) : larger(after - k + count, 0);
      }
    }
    return a.layout.row_offsets[t];  // the sequence's place is in the bases
  }
  // Where the column of the k-th frame is.
  template <Phase phase>
  __device__ int32_t column_of(int k, int32_t row) const {
    if constexpr (phase == Phase::again) return (ring_begin + k) & ring_mask;
    if constexpr (phase == Phase::through) return (ring_begin - k) & ring_mask;
    return row;
  }

  template <Phase phase>
  __device__ void load_ahead(int slot, int k, int32_t row) {
    next[slot].row = row;
    a.emissions.load(next[slot], emissions);
    if constexpr (has_posteriors<phase>) columns.load(column_of<phase>(k, row), stored[slot]);
  }

  // Begins `frame_count` frames from frame `from` on. With a stage, chunks of the first half end at
  // the middle, the first one may lack frames: so both halves have the same chunks, and a lane's
  // column the same exponent in all of a chunk.
  template <bool up, Phase phase>
  __device__ void prime(int from, int frame_count) {
    begin = from;
    count = frame_count;
    skipped = 0;
    if (count == 0) return;
    if constexpr (stages && staged<phase>) {
      if (stores<phase> && count % chunk_frames > 0) skipped = chunk_frames - count % chunk_frames;
      begin = up ? from - skipped : from + skipped;
      count += skipped;
    } else {
      RONDO_UNROLL(ahead)
      for (int k = 0; k < ahead; ++k) {
        load_ahead<phase>(k, k, row_of<up, phase>(k));
        rows[k] = row_of<up, phase>(k + ahead);
      }
    }
  }

  // The block's first warp of the direction, if it is not the sequence's.
  template <bool up>
  __device__ bool follows_another_block() const {
    return local_warp == (up ? 0 : block_warps - 1) && warp != (up ? 0 : all_warps - 1);
  }
  // Where states come in from: nullptr for the first warp of the direction.
  template <bool up>
  __device__ const CtcSeam* seam_in(int c) const {
    if (warp == (up ? 0 : all_warps - 1)) return nullptr;
    if constexpr (across) {
      if (follows_another_block<up>()) {
        if constexpr (stages) return &s.frames.border[c % stage_slots];
        return border_in + c;
      }
    }
    return &seam<up>(up ? local_warp - 1 : local_warp + 1, c);
  }
  template <bool up>
  __device__ CtcSeam& seam_out(int c) const {
    // With stages, what goes through memory is the ender's.
    if constexpr (across && !stages) {
      if (border_out && local_warp == (up ? block_warps - 1 : 0)) return border_out[c];
    }
    return seam<up>(local_warp, c);
  }
  template <bool up>
  __device__ CtcSeam& seam(int of, int c) const {
    return s.seam[up ? 0 : 1][of][(seams_before + c) % 2];
  }

  // The sums over predecessors of the current states; of the states before them, `seam` is the
  // nearest pair of the warp before.
  template <bool up>
  __device__ Sums<P> sums(const NearestPair& seam) const {
    float in_l = up ? __shfl_up_sync(all_lanes, tile.l[P - 1], 1)
                    : __shfl_down_sync(all_lanes, tile.l[0], 1);
    float in_b = up ? 0 : __shfl_down_sync(all_lanes, tile.b[0], 1);
    // Where nothing comes in, carry is 0.
    if (wide && lane == (up ? 0 : 31)) {
      in_l = seam.l;
      if constexpr (!up) in_b = seam.b;
    }
    return tile.template sums<up>(in_b, in_l);
  }
  template <bool up>
  static __device__ NearestPair nearest(const CtcSeam* in, int f) {
    if (!in) return {0, 0};
    return {up ? 0 : in->b[f], in->l[f]};
  }
  template <bool up>
  __device__ void write_seam(CtcSeam& out, int f) const {
    if (lane != (up ? 31 : 0)) return;
    out.l[f] = up ? tile.l[P - 1] : tile.l[0];
    out.b[f] = tile.b[0];
  }

  // Leaves the states before frame `f` of chunk c to the next warp; the larger of what it takes.
  template <bool up>
  __device__ float pass_on(int c, int f) const {
    write_seam<up>(seam_out<up>(c), f);
    return up ? tile.l[P - 1] : fmaxf(tile.l[0], tile.b[0]);
  }
  // After the frames: in which units, and the largest of pass_on().
  template <bool up>
  __device__ void end_seam(int c, float top) const {
    if (lane != (up ? 31 : 0)) return;
    CtcSeam& mine = seam_out<up>(c);
    mine.exponent = tile.exponent;
    mine.top = top > 0 ? tile.exponent + exponent_of(top) : no_exponent;
  }

  // Frames [c * chunk, (c + 1) * chunk) of the current half.
  template <bool up, Phase phase>
  __device__ void chunk(int c) {
    if (warps <= 4 && (c + 1) * chunk_frames <= count) {
      chunk<up, phase, true>(c);
    } else {
      chunk<up, phase, false>(c);
    }
  }

  // Leaves the states that matter before the k-th frame.
  template <bool up>
  __device__ void clear_before(int k) {
    const int now = up ? frame<up>(k) - 1 : frame<up>(k) + 1;
    tile.clear(now);
  }
  template <bool up, Phase phase, bool whole>
  __device__ void chunk(int c) {
    const int k0 = c * chunk_frames;
    const CtcSeam* in = nullptr;
    Inflow inflow;
    if constexpr (wide) {
      in = seam_in<up>(c);
      if (in) inflow = {in->exponent, in->top};
    }
    clear_before<up>(k0);
    tile.template scale<up>(inflow);
    float out = 0;
    RONDO_UNROLL(chunk_frames)
    for (int f = 0; f < chunk_frames; ++f) {
      const int k = k0 + f;
      if (!whole && k >= count) break;
      if constexpr (wide) out = fmaxf(out, pass_on<up>(c, f));
      Ahead<P>& e = next[f % ahead];
      const Sums<P> u = sums<up>(nearest<up>(in, f));
      if constexpr (has_posteriors<phase>) {
        const Stored<P>& other = stored[f % ahead];
        s.frames.sums[threadIdx.x / 32][f][lane] =
            posterior(u, other.states, posterior_factor(tile.exponent, other.exponent), e.row);
      }
      a.emissions.finish(e);
      tile.template emit<up>(u, e.y, e.blank);
      if constexpr (stores<phase>) columns.store(column_of<phase>(k, e.row), tile);
      load_ahead<phase>(f % ahead, k + ahead, rows[f % ahead]);
      rows[f % ahead] = row_of<up, phase>(k + 2 * ahead);
    }
    if constexpr (wide) end_seam<up>(c, out);
    if constexpr (has_posteriors<phase>) sum_posteriors<up, phase>(k0);
  }

  // What a lane's product of alpha and beta is to be multiplied by, in units of Z * 2^-z_exponent.
  __device__ PosteriorFactor posterior_factor(int exponent, int other_exponent) const {
    const int bits = exponent + other_exponent - z_exponent;
    const int rest = clamped(bits - (smaller(bits, 0) >> 1), -126, 100);
    const float power = power_of_two(clamped(bits - rest, -126, 127));
    return {bits < -252 ? 0 : power, power_of_two(rest)};
  }
  // Posteriors, up to a factor common to the frame, into the place of the emissions; the lane's
  // sums.
  __device__ CtcPartial posterior(const Sums<P>& u, const Sums<P>& other,
                                  const PosteriorFactor& factor, int32_t row) const {
    PairWords<P> words;
    float blanks = 0, all = 0;
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      blanks += u.b[j] * factor.first * other.b[j];
      words.at[j] = u.l[j] * factor.first * other.l[j] * factor.rest;
      all += words.at[j];
    }
    blanks *= factor.rest;
    const auto stride = static_cast<uint32_t>(a.work.emission_stride);
    if (first < static_cast<int>(stride) - ctc_emission_end) {
      *reinterpret_cast<PairWords<P>*>(
          in_row(emissions.y, row, stride * static_cast<uint32_t>(sizeof(float)))) = words;
    }
    return {blanks, all + blanks};
  }

  // Sums over the lanes, a chunk of frames at once: four lanes add eight values each.
  __device__ CtcPartial sum_lanes(const CtcPartial (&of)[ctc_most_chunk][33]) const {
    const int f = smaller(lane % 8, chunk_frames - 1);
    CtcPartial sum = {0, 0};
    RONDO_UNROLL(8)
    for (int i = 0; i < 8; ++i) {
      const CtcPartial one = of[f][lane / 8 * 8 + i];
      sum.blank += one.blank;
      sum.all += one.all;
    }
    RONDO_UNROLL(2)
    for (int d = 8; d < 32; d *= 2) {
      sum.blank += __shfl_xor_sync(all_lanes, sum.blank, d);
      sum.all += __shfl_xor_sync(all_lanes, sum.all, d);
    }
    return sum;
  }
  __device__ void write_sum(int k, int32_t row, const CtcPartial& sum) const {
    const auto bytes =
        static_cast<uint32_t>(sizeof(CtcPartial)) * static_cast<uint32_t>(a.work.all_warps);
    CtcPartial* at = in_row(a.work.partial + n * a.work.all_warps + warp, row, bytes);
    if (lane < chunk_frames && k >= 0 && k < count) *at = sum;
  }
  template <bool up, Phase phase>
  __device__ void sum_posteriors(int k0) {
    __syncwarp();
    const CtcPartial sum = sum_lanes(s.frames.sums[threadIdx.x / 32]);
    const int k = k0 + lane % 8;
    write_sum(k, row_of<up, phase>(k), sum);
    __syncwarp();
  }
  // The warps of the block that come before this one.
  __device__ int turn(bool up) const { return up ? local_warp : block_warps - 1 - local_warp; }

  // Whole halves, in chunks; warps of a direction follow each other. Barriers inside if `wide`.
  template <Phase phase>
  __device__ void run(bool up, int chunks) {
    if constexpr (wide) {
      const int mine = (count + chunk_frames - 1) / chunk_frames;
      for (int tick = 0; tick < chunks + block_warps - 1; ++tick) {
        const int c = tick - turn(up);
        if (c >= 0 && c < mine) up ? chunk<true, phase>(c) : chunk<false, phase>(c);
        __syncthreads();
      }
    } else {
      for (int c = 0; c * chunk_frames < count; ++c) {
        up ? chunk<true, phase>(c) : chunk<false, phase>(c);
      }
    }
  }

  // alpha one frame before the middle meets beta in the middle: the exponent of the largest term.
  // This is a frame more than `carry` is made for: an alignment may enter a lane that it could not
  // reach in the chunk.
  __device__ int meet(int32_t row, const CtcSeam* in) const {
    float near_l = __shfl_up_sync(all_lanes, tile.l[P - 1], 1);
    if (wide && in && lane == 0) near_l = in->l[0];
    int near_scale = from_before<P, true>(tile.exponent, 1, in ? in->exponent : no_exponent);
    Stored<P> other;
    columns.load(row, other);
    int top = no_exponent;
    const auto term = [&](float x, int scale, float y) {
      top = larger(top, product_exponent(x, scale, y, other.exponent));
    };
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      term(tile.b[j], tile.exponent, other.states.b[j]);
      term(tile.b[j], tile.exponent, other.states.l[j]);
      term(tile.l[j], tile.exponent, other.states.l[j]);
      term(near_l, near_scale, other.states.b[j]);
      if (tile.skip[j] > 0) term(near_l, near_scale, other.states.l[j]);
      near_l = tile.l[j];
      near_scale = tile.exponent;
    }
    for (int d = 16; d > 0; d /= 2) top = larger(top, __shfl_xor_sync(all_lanes, top, d));
    return top;
  }

  __device__ void write_end(bool up) const {
    RONDO_UNROLL(P)
    for (int j = 0; j < P; ++j) {
      const int i = first + j;
      End& end = s.end[up ? 0 : 1];
      if (i == (up ? labels : 0)) {
        end.value[0] = tile.b[j];
        end.exponent[0] = tile.exponent;
      }
      if (i == (up ? labels - 1 : 0)) {
        end.value[1] = tile.l[j];
        end.exponent[1] = tile.exponent;
      }
    }
  }
};

}  // namespace
}  // namespace rondo::RONDO_GPU
