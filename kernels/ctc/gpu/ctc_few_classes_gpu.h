// The passes over rows for up to 64 classes: before the lattice and after it, as in
// ctc_rows_gpu.h. What they cost there is instructions, not bytes, so a block takes frames of one
// sequence, looks at the labels once for all of them, and does per row what the number of classes
// asks for: eight threads share a row, each class has one exp, and labels take theirs from a table
// in shared memory. For the *.cu files of kernels/ctc alone.
#pragma once

#include <algorithm>

#include "kernels/ctc/gpu/ctc_label_groups_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int few_classes = 64;
constexpr int few_labels = 1023;
constexpr int row_team = 8;  // threads that share a row
constexpr int row_teams = row_threads / row_team;
constexpr int prepare_frames = 2 * row_teams;  // of a block

// Four after each other, in one access.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

// A thread's classes of a row: four after each other of every 32. Which they are depends neither on
// where the row lies nor on how it is read, and so does the order of sums.
template <int quads>
struct RowClasses {
  static constexpr int count = 4 * quads, padded = 32 * quads;
  int rank, classes;
  bool vectors;  // four logits in one access

  template <class T>
  __device__ RowClasses(const Problem<T>& p, int thread)
      : rank(thread % row_team),
        classes(static_cast<int>(p.classes)),
        vectors(p.aligned && p.classes % 4 == 0) {}

  __device__ int at(int i) const { return i / 4 * 32 + rank * 4 + i % 4; }

  // `otherwise` for what is no class.
  template <class T>
  __device__ void load(const T* row, float (&x)[count], float otherwise) const {
    RONDO_UNROLL(2)
    for (int q = 0; q < quads; ++q) {
      if (vectors) {
        Four<T> four = {};
        if (at(4 * q) < classes) four = *reinterpret_cast<const Four<T>*>(row + at(4 * q));
        RONDO_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
          x[4 * q + j] = at(4 * q) < classes ? to_float(four.at[j]) : otherwise;
        }
      } else {
        RONDO_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
          const int v = at(4 * q + j);
          x[4 * q + j] = v < classes ? to_float(row[v]) : otherwise;
        }
      }
    }
  }
  template <class T>
  __device__ void store(T* row, const float (&x)[count]) const {
    RONDO_UNROLL(2)
    for (int q = 0; q < quads; ++q) {
      if (vectors) {
        Four<T> four;
        RONDO_UNROLL(4)
        for (int j = 0; j < 4; ++j) four.at[j] = to<T>(x[4 * q + j]);
        if (at(4 * q) < classes) *reinterpret_cast<Four<T>*>(row + at(4 * q)) = four;
      } else {
        RONDO_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
          const int v = at(4 * q + j);
          if (v < classes) row[v] = to<T>(x[4 * q + j]);
        }
      }
    }
  }
};

__device__ inline float team_max(float x) {
  RONDO_UNROLL(3)
  for (int d = row_team / 2; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(all_lanes, x, d));
  return x;
}
__device__ inline float team_sum(float x) {
  RONDO_UNROLL(3)
  for (int d = row_team / 2; d > 0; d /= 2) x += __shfl_xor_sync(all_lanes, x, d);
  return x;
}

// A block's frames of a sequence, from frame `first` on.
struct SequenceFrames {
  int32_t n, first;
  __device__ SequenceFrames(const PackedView& layout, unsigned block, int32_t frames)
      : n(static_cast<int32_t>(block % static_cast<unsigned>(layout.capacity.sequences))),
        first(static_cast<int32_t>(block / static_cast<unsigned>(layout.capacity.sequences)) *
              frames) {}
};

// Of a row.
template <class T>
__device__ uint32_t logit_bytes(const Problem<T>& p) {
  return static_cast<uint32_t>(p.classes * sizeof(T));
}
template <class T>
__device__ uint32_t emission_bytes(const Problem<T>& p) {
  return static_cast<uint32_t>(p.work.emission_stride * sizeof(float));
}

// ---- before the lattice ----

// The labels in rows of emissions: as many as these have words. Those past the last one are of
// class `padded`, whose emission is 0.
struct PrepareShared {
  static constexpr int words = (few_labels + 3) / 4 * 4 + ctc_emission_end;
  alignas(16) int32_t label[words];
  int32_t used[few_classes];  // whether the sequence has such a label, or it is the blank
  // The emissions of a row's classes. The rows of a warp begin 4 words of 32 apart.
  alignas(16) float emission[row_teams][few_classes + 4];
};

// One sequence's frames.
template <class T, int quads>
struct PrepareFew {
  using Classes = RowClasses<quads>;
  const Problem<T>& p;
  PrepareShared& s;
  const int32_t n;
  const Classes classes;
  unsigned used = 0;  // this thread's classes: bits

  __device__ void look_at_labels() {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    const int32_t count = p.label_count(n);
    const int32_t* label = p.labels_of(n);
    if (thread < few_classes) s.used[thread] = thread == p.blank;
    if (thread < row_teams) s.emission[thread][Classes::padded] = 0;
    __syncthreads();
    const auto words = static_cast<int32_t>(p.work.emission_stride);
    RONDO_UNROLL(1)  // a turn
    for (int32_t i = thread; i < words; i += row_threads) {
      s.label[i] = i < count ? label[i] : Classes::padded;
      if (i < count) atomicExch(&s.used[label[i]], 1);
    }
    __syncthreads();
    RONDO_UNROLL(8)
    for (int i = 0; i < Classes::count; ++i) {
      used |= static_cast<unsigned>(s.used[classes.at(i)]) << i;
    }
  }

  // All lanes of a warp call this; inactive ones come along for the exchanges.
  __device__ void row(int32_t at, bool active, bool fast) {
    float x[Classes::count] = {};
    if (active) classes.load(in_row(p.logits, at, logit_bytes(p)), x, -INFINITY);
    float top = -INFINITY;
    RONDO_UNROLL(8)
    for (int i = 0; i < Classes::count; ++i) top = fmaxf(top, x[i]);
    top = team_max(top);
    float shift = top, best = 0;
    bool bad = false;
    if (fast) {
      best = -INFINITY;
      RONDO_UNROLL(8)
      for (int i = 0; i < Classes::count; ++i) best = fmaxf(best, is_used(i) ? x[i] : -INFINITY);
      best = team_max(best);
      RONDO_UNROLL(8)
      for (int i = 0; i < Classes::count; ++i) {
        const float log_y = x[i] - best;
        bad |= is_used(i) && (!(log_y <= 0) || is_faint(log_y));
      }
      // The same exp serves the sum and the emissions, unless it could be too large for a sum.
      if (top - best < 40 || p.log_probabilities) shift = best;
    }
    float y[Classes::count];
    const float sum = team_sum(exps(x, shift, y));
    if (active && classes.rank == 0) p.work.softmax[at] = {shift, sum};
    if (!fast) return;

    if (!p.log_probabilities) bad |= !(sum < INFINITY) || !(sum > 0);
    bad = (__ballot_sync(all_lanes, bad) >> (threadIdx.x % 32 / row_team * row_team) & 0xff) != 0;
    if (__any_sync(all_lanes, shift != best)) exps(x, best, y);
    emit(at, active, y);
    if (!active || classes.rank != 0) return;
    const float log_best = p.log_probabilities ? best : best - shift - logf(sum);
    p.work.emission[at] = {bad ? NAN : s.emission[threadIdx.x / row_team][p.blank], best, log_best,
                           0};
  }

 private:
  __device__ bool is_used(int i) const { return (used >> i & 1) != 0; }

  // exp(x - shift) of this thread's classes, and their sum.
  static __device__ float exps(const float (&x)[Classes::count], float shift,
                               float (&y)[Classes::count]) {
    const float finite = shift == -INFINITY ? 0 : shift;
    float sum = 0;
    RONDO_UNROLL(8)
    for (int i = 0; i < Classes::count; ++i) {
      y[i] = expf(x[i] - finite);
      sum += y[i];
    }
    return sum;
  }

  // The emissions of a row's labels, four at once.
  __device__ void emit(int32_t at, bool active, const float (&y)[Classes::count]) {
    float(&table)[few_classes + 4] = s.emission[threadIdx.x / row_team];
    __syncwarp();  // the row before has been read
    RONDO_UNROLL(2)
    for (int q = 0; q < quads; ++q) {
      *reinterpret_cast<Four<float>*>(&table[classes.at(4 * q)]) = {
          {y[4 * q], y[4 * q + 1], y[4 * q + 2], y[4 * q + 3]}};
    }
    __syncwarp();
    if (!active || !p.grad) return;
    const auto words = static_cast<int32_t>(p.work.emission_stride);
    float* to = in_row(p.work.label_emission, at, emission_bytes(p));
    RONDO_UNROLL(1)  // a few turns
    for (int32_t i = 4 * classes.rank; i < words; i += 4 * row_team) {
      const auto label = *reinterpret_cast<const Four<int32_t>*>(&s.label[i]);
      Four<float> of_labels;
      RONDO_UNROLL(4)
      for (int j = 0; j < 4; ++j) of_labels.at[j] = table[label.at[j]];
      *reinterpret_cast<Four<float>*>(to + i) = of_labels;
    }
  }
};

// The first blocks group labels.
template <class T, int quads>
__global__ void __launch_bounds__(row_threads, 4)
    prepare_few(Problem<T> p, unsigned groups, bool fast) {
  if (blockIdx.x < groups) {
    GroupShared& s = shared<GroupShared>();
    if (static_cast<int>(blockIdx.x) < p.layout.extent->sequences) group_labels(p, blockIdx.x, s);
    return;
  }
  const SequenceFrames at(p.layout, blockIdx.x - groups, prepare_frames);
  if (at.n >= p.layout.extent->sequences) return;
  const int32_t last = smaller(at.first + prepare_frames, p.layout.lengths[at.n]);
  if (at.first >= last) return;
  const auto thread = static_cast<int>(threadIdx.x);
  PrepareFew<T, quads> x{p, shared<PrepareShared>(), at.n, {p, thread}};
  if (fast) x.look_at_labels();
  RONDO_UNROLL(1)
  for (int32_t begin = at.first; begin < last; begin += row_teams) {
    const int32_t t = begin + thread / row_team;
    const bool active = t < last;
    x.row(active ? p.layout.row_offsets[t] + at.n : 0, active, fast);
  }
}

// ---- after the lattice ----

// Posteriors of some labels, in the order of their classes, lie with the frames in the lanes, so
// that all lanes of a warp add up the same labels. An odd stride keeps lanes in banks of their own.
constexpr int gradient_labels = 192;
constexpr int gradient_frames = 32;  // of a block
constexpr int gradient_threads =
    128;  // fewer warps than frames: what each does once is for more rows
struct GradientFewShared {
  float label[gradient_frames][gradient_labels + 1];  // [frame][label]
  float posterior[few_classes][gradient_frames + 1];  // [class][frame]
  int32_t begin[few_classes];                         // a class's first label, in order
  // At the last label of a piece (group_labels()) its class, elsewhere -1.
  int8_t ends[few_labels + 1];
};
static_assert(gradient_frames == 32);

// Frames [first, first + 32) of one sequence; rows of theirs up to `rows`, of them the sequence's
// own up to `length`.
template <class T, int quads>
struct GradientFew {
  using Classes = RowClasses<quads>;
  const Problem<T>& p;
  GradientFewShared& s;
  const int32_t n, first;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  static constexpr int warps = gradient_threads / 32;

  __device__ int32_t row(int32_t t) const { return p.layout.row_offsets[t] + n; }

  // The posteriors of all classes at the frames before `last`, up to a factor. A warp adds up some
  // classes, about as many labels as the others.
  __device__ void add_up(int32_t last) {
    const int32_t* order = p.work.order + int64_t{n} * p.work.max_labels;
    const int32_t labels = p.label_count(n);
    find_pieces(labels);
    int32_t from = 0, to = 0;
    float sum = 0;
    for (int32_t begin = 0;; begin += gradient_labels) {
      const int32_t end = smaller(begin + gradient_labels, labels);
      copy(order, begin, end, last);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      if (begin == 0) {
        from = first_label(order, labels, warp);
        to = first_label(order, labels, warp + 1);
      }
      add(larger(from, begin), smaller(to, end), begin, sum);
      __syncthreads();
      if (end == labels) break;
    }
  }

  // Rows of the frames before `last` get their gradient, others from frame `zeros` on get 0.
  __device__ void write(int32_t last, int32_t zeros) const {
    const Classes classes(p, static_cast<int>(threadIdx.x));
    const float scale = p.grad_scale ? p.grad_scale[n] : 1.0f;
    constexpr int teams = gradient_threads / row_team;
    RONDO_UNROLL(2)
    for (int i = 0; i < gradient_frames / teams; ++i) {
      const int frame = static_cast<int>(threadIdx.x) / row_team + i * teams;
      const int32_t t = first + frame;
      if (t >= p.layout.extent->frames || (t >= last && t < zeros)) return;
      const int32_t at = row(t);
      if (at >= p.layout.row_offsets[t + 1]) return;
      float x[Classes::count] = {};
      if (t < last) gradient(classes, at, frame, scale, x);
      classes.store(in_row(p.grad, at, logit_bytes(p)), x);
    }
  }

 private:
  __device__ void find_pieces(int32_t labels) {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    RONDO_UNROLL(1)
    for (int32_t i = thread; i < labels; i += gradient_threads) s.ends[i] = -1;
    RONDO_UNROLL(1)
    for (int v = warp; v < static_cast<int>(p.classes); v += warps) s.posterior[v][lane] = 0;
    __syncthreads();
    const int32_t* begin = p.work.piece_begin + int64_t{n} * (p.work.max_labels + 1);
    const int32_t* piece_class = p.work.piece_class + int64_t{n} * p.work.max_labels;
    const int32_t pieces = p.work.pieces[n];
    RONDO_UNROLL(1)
    for (int32_t k = thread; k < pieces; k += gradient_threads) {
      const int32_t v = piece_class[k];
      s.ends[begin[k + 1] - 1] = static_cast<int8_t>(v);
      if (k == 0 || piece_class[k - 1] != v) s.begin[v] = begin[k];
    }
  }
  // Where a warp begins: with the class that is in its turn, if labels are dealt evenly.
  __device__ int32_t first_label(const int32_t* order, int32_t labels, int of) const {
    const int32_t even = of * labels / warps;
    return even < labels ? s.begin[p.labels_of(n)[order[even]]] : labels;
  }

  // Into shared memory: labels [begin, end) in order, at the frames before `last`.
  __device__ void copy(const int32_t* order, int32_t begin, int32_t end, int32_t last) {
    constexpr int share = gradient_frames / warps;
    const float* from[share];
    RONDO_UNROLL(8)
    for (int k = 0; k < share; ++k) {
      const int32_t t = smaller(first + warp + k * warps, last - 1);
      from[k] = in_row(p.work.label_emission, row(t), emission_bytes(p));
    }
    RONDO_UNROLL(1)  // registers are short
    for (int32_t i = begin + lane; i < end; i += 32) {
      const int32_t at = order[i];
      RONDO_UNROLL(8)
      for (int k = 0; k < share; ++k) {
        cp_async<4>(&s.label[warp + k * warps][i - begin], from[k] + at);
      }
    }
  }

  // Labels [from, to), of those in shared memory from `begin` on, at this lane's frame. `sum`: of a
  // piece, which may go on in the next ones.
  __device__ void add(int32_t from, int32_t to, int32_t begin, float& sum) {
    RONDO_UNROLL(4)
    for (int32_t i = from; i < to; ++i) {
      sum += s.label[lane][i - begin];
      const int v = s.ends[i];
      if (v < 0) continue;
      s.posterior[v][lane] += sum;
      sum = 0;
    }
  }

  __device__ void gradient(const Classes& classes, int32_t at, int frame, float scale,
                           float (&x)[Classes::count]) const {
    classes.load(in_row(p.logits, at, logit_bytes(p)), x, 0.0f);
    const CtcSoftmax softmax = p.work.softmax[at];
    const CtcPosterior own = p.work.posterior[at];
    const float inverse = 1 / softmax.sum;
    RONDO_UNROLL(8)
    for (int i = 0; i < Classes::count; ++i) {
      const float y = p.log_probabilities ? 0.0f : expf(x[i] - softmax.top) * inverse;
      const int v = classes.at(i);
      const float labels = s.posterior[v][frame] * own.normaliser;
      x[i] = scale * (y - (v == p.blank ? own.blank : labels));
    }
  }
};

template <class T, int quads>
__global__ void __launch_bounds__(gradient_threads, 6) write_gradient_few(Problem<T> p) {
  const SequenceFrames at(p.layout, blockIdx.x, gradient_frames);
  if (at.n >= p.layout.extent->sequences) return;
  const CtcState state = p.work.state[at.n];
  const int32_t length = p.layout.lengths[at.n];
  const int32_t last = state == CtcState::fine ? length : 0;
  GradientFew<T, quads> x{p, shared<GradientFewShared>(), at.n, at.first};
  if (at.first < last) x.add_up(last);
  // What log space leaves out are the rows past a sequence's length, which padded batches have.
  x.write(last, state == CtcState::log_space ? length : 0);
}

// ---- launches ----

template <class T>
bool has_few_classes(const Problem<T>& p) {
  return p.classes <= few_classes && p.work.max_labels <= few_labels;
}
template <class T>
unsigned blocks_of_sequences(const Problem<T>& p, int32_t frames) {
  const PackedCapacity& c = p.layout.capacity;
  return static_cast<unsigned>(c.sequences) * blocks_for(c.frames, frames);
}

template <class T>
void launch_prepare_few(const Context& context, const Problem<T>& p, unsigned groups, bool fast) {
  launch(context,
         {.kernel = "ctc prepare",
          .grid = {groups + blocks_of_sequences(p, prepare_frames)},
          .block = {row_threads},
          .shared_bytes = std::max(sizeof(GroupShared), sizeof(PrepareShared))},
         p.classes <= few_classes / 2 ? prepare_few<T, 1> : prepare_few<T, 2>, p, groups, fast);
}
template <class T>
void launch_gradient_few(const Context& context, const Problem<T>& p) {
  launch(context,
         {.kernel = "ctc gradient",
          .grid = {blocks_of_sequences(p, gradient_frames)},
          .block = {gradient_threads},
          .shared_bytes = sizeof(GradientFewShared)},
         p.classes <= few_classes / 2 ? write_gradient_few<T, 1> : write_gradient_few<T, 2>, p);
}

}  // namespace
}  // namespace rondo::RONDO_GPU
