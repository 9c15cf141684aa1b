// Viterbi over a strip of labels, compiled once per instruction set. The states stay in registers
// over all frames.
#include "engine/decode/align/alignment_kernel.h"
#include "kernels/base/cpu/simd.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace rondo::RONDO_ISA {
namespace {

constexpr int N = W / 2;  // doubles
typedef double vd __attribute__((vector_size(N * 8)));
typedef int64_t vl __attribute__((vector_size(N * 8)));
typedef double vd_unaligned __attribute__((vector_size(N * 8), aligned(8), may_alias));
typedef float vhalf __attribute__((vector_size(N * 4)));
typedef uint8_t vb __attribute__((vector_size(N)));
typedef uint8_t vb_unaligned __attribute__((vector_size(N), aligned(1), may_alias));

inline vd load_doubles(const double* p) { return *reinterpret_cast<const vd_unaligned*>(p); }
inline void store_doubles(double* p, vd v) { *reinterpret_cast<vd_unaligned*>(p) = v; }

inline vd larger(vd a, vd b) { return a > b ? a : b; }

// Each lane gets what the one below holds, the lowest the highest of `before`.
inline vd shifted(vd v, vd before) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(before, v, 7, 8, 9, 10, 11, 12, 13, 14);
#elif defined(__AVX2__)
  return __builtin_shufflevector(before, v, 3, 4, 5, 6);
#else
  return __builtin_shufflevector(before, v, 1, 2);
#endif
}

// The scores of labels in one frame. Two groups at once, so that a vector of floats is full.
template <int groups, bool small>
struct Scores {
#if defined(__AVX512F__)
  static constexpr int pairs = (groups + 1) / 2;
  vi index[pairs];

  explicit Scores(const int32_t* at) {
    for (int i = 0; i < pairs; ++i) index[i] = *reinterpret_cast<const vi_unaligned*>(at + i * W);
  }
  void take(const float* row, vd* out) const {
    for (int i = 0; i < pairs; ++i) {
      vf v;
      if constexpr (small) {
        v = (vf)_mm512_permutex2var_ps((__m512)load(row), (__m512i)index[i], (__m512)load(row + W));
      } else {
        for (int lane = 0; lane < W; ++lane) v[lane] = row[index[i][lane]];
      }
      const vhalf low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
      const vhalf high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
      out[2 * i] = __builtin_convertvector(low, vd);
      out[2 * i + 1] = __builtin_convertvector(high, vd);
    }
  }
#else
  const int32_t* index;

  explicit Scores(const int32_t* at) : index(at) {}
  void take(const float* row, vd* out) const {
    for (int i = 0; i < groups * alignment_group / N; ++i) {
      for (int lane = 0; lane < N; ++lane) {
        out[i][lane] = static_cast<double>(row[index[i * N + lane]]);
      }
    }
  }
#endif
};

inline void write_steps(uint8_t* to, vl blank_moves, vl from_blank, vl from_label) {
  const vl near = from_blank & (vl{} + label_from_blank);
  const vl label = from_label ? vl{} + label_from_label : near;
  const vl step = (blank_moves & (vl{} + blank_from_label)) | label;
  *reinterpret_cast<vb_unaligned*>(to) = __builtin_convertvector(step, vb);
}

template <int groups, bool small, bool steps>
void run(const AlignmentStrip& s) {
  constexpr int vectors = groups * alignment_group / N;
  vd blanks[vectors], labels[vectors], skips[vectors];
  for (int i = 0; i < vectors; ++i) {
    blanks[i] = load_doubles(s.blanks + i * N);
    labels[i] = load_doubles(s.labels + i * N);
    skips[i] = load_doubles(s.skips + i * N);
  }
  const Scores<groups, small> scores(s.scores_of);
  for (int32_t t = 0; t < s.frames; ++t) {
    const float* row = s.table + t * s.row;
    for (int i = 0; i < alignment_group / N; ++i) {
      store_doubles(s.last + t * alignment_group + i * N,
                    labels[vectors - alignment_group / N + i]);
    }
    vd emitted[(groups + 1) / 2 * 2 * alignment_group / N];
    scores.take(row, emitted);
    const double blank = static_cast<double>(row[0]);
    // From the last to the first, so that the one below is still that of the frame before.
    for (int i = vectors - 1; i >= 0; --i) {
      const vd below =
          shifted(labels[i], i > 0 ? labels[i > 0 ? i - 1 : 0] : vd{} + s.from_label[t * s.stride]);
      const vd over =
          (i > 0 ? below : shifted(labels[i], vd{} + s.from_skip[t * s.stride])) + skips[i];
      const vd nearer = larger(blanks[i], labels[i]);
      if constexpr (steps) {
        write_steps(s.steps + t * s.steps_row + i * N, below > blanks[i], blanks[i] > labels[i],
                    over > nearer);
      }
      blanks[i] = larger(below, blanks[i]) + blank;
      labels[i] = larger(over, nearer) + emitted[i];
    }
  }
  for (int i = 0; i < vectors; ++i) {
    store_doubles(s.blanks + i * N, blanks[i]);
    store_doubles(s.labels + i * N, labels[i]);
  }
}

template <bool small, bool steps>
void run_groups(const AlignmentStrip& s) {
  switch (s.groups) {
    case 1:
      return run<1, small, steps>(s);
    case 2:
      return run<2, small, steps>(s);
    case 3:
      return run<3, small, steps>(s);
    default:
      return run<4, small, steps>(s);
  }
}

}  // namespace

void align_strip(const AlignmentStrip& strip) {
  const bool small = strip.row <= alignment_small_table;
  if (small) {
    strip.steps ? run_groups<true, true>(strip) : run_groups<true, false>(strip);
  } else {
    strip.steps ? run_groups<false, true>(strip) : run_groups<false, false>(strip);
  }
}

}  // namespace rondo::RONDO_ISA
