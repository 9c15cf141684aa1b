// A frame of prefix beam search by one block. For beam_search.cu alone.
//
// The beam lies in shared memory twice, before and after a frame. Per frame, with barriers between:
//   stay     a thread for each prefix: what stays, and what its parent, found by its hash, adds
//   bound    of each prefix the better one of itself and of what it becomes by the frame's most
//            probable label: all these are different, so the worst of them is a threshold
//   label    which classes are probable enough to extend anything
//   collect  what grows into something new, and is above the threshold, goes into the list, behind
//            all that stay. Where the list is too short, its beam-th best becomes the threshold,
//            and they are collected once more
//   rank     of each of the list the better ones are counted
//   choose   the first `beam` are the beam
// The order within the list depends on which warp comes first, its ranks do not.
#pragma once

#include "kernels/beam_search/beam_search_impl.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int most_classes = beam_search_most_classes;
constexpr uint64_t empty_hash = 0x243f6a8885a308d3u;

// The prefixes of a beam.
template <int W>
struct Beam {
  double blank[W], label[W];  // shares of the alignments
  double gain[W];             // that it grew from its parent with
  uint64_t hash[W], parent_hash[W];
  int32_t last[W];  // label; -1: none
  int32_t depth[W], node[W], state[W];
};

template <int W>
struct SearchShared {
  static constexpr int list_size = 4 * W, table_size = 2 * W, warps = 2 * W / 32;

  Beam<W> beams[2];
  double frames[2][most_classes];  // probabilities of the classes, now and next
  int32_t tops[2];                 // the most probable label
  double totals[W];
  // What may be in the next beam: probabilities as bits, which order them, and numbers that say
  // which comes first of equal ones: of what stays the place in the beam, then id_of().
  uint64_t keys[list_size];
  alignas(16) uint32_t high[list_size];  // upper halves of keys
  int32_t ids[list_size];
  int32_t table[table_size];                   // places in the beam by hash; -1: none
  uint32_t children[W * (most_classes / 32)];  // bits of the labels that lead to one of the beam
  uint32_t may_extend[most_classes / 32];
  int32_t extending[most_classes];
  // Of each of the list, in two parts of it: how many are better, how many not worse.
  uint32_t better[2][list_size], not_worse[2][list_size];
  uint32_t partial[3][warps];
  int32_t listed, extenders, chosen;
  uint64_t limit_key, best_key;
  int32_t limit_id;
};

inline __device__ uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline __device__ double value_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// The upper half of a probability's bits: ordered as they are, and of values between 0 and 1 in
// 2^-20 of them the same.
inline __device__ uint32_t high_of(double x) { return static_cast<uint32_t>(bits_of(x) >> 32); }
inline __device__ double value_of_high(uint32_t high) { return value_of(uint64_t{high} << 32); }

// (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", its mixer.)
inline __device__ uint64_t grown_hash(uint64_t hash, int32_t label) {
  uint64_t x = hash + (static_cast<uint64_t>(label) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// What a launch is told of the search.
struct Rules {
  int32_t classes, beam, blank;
  bool sum;
  double floor, range;
  const uint8_t* extends;
  BeamAutomaton automaton;

  __device__ double join(double a, double b) const { return sum ? a + b : fmax(a, b); }
};

template <int W>
class BeamSearch {
 public:
  static constexpr int threads = 2 * W;
  using Shared = SearchShared<W>;

  __device__ BeamSearch(const Rules& rules, BeamNode* nodes)
      : s_(shared<Shared>()), rules_(rules), nodes_(nodes), words_((rules.classes + 31) / 32) {
    Beam<W>& b = now();
    if (me() == 0) {
      b.blank[0] = 1;
      b.label[0] = 0;
      b.gain[0] = 1;
      b.hash[0] = empty_hash;
      b.parent_hash[0] = 0;
      b.last[0] = -1;
      b.depth[0] = 0;
      b.node[0] = -1;
      b.state[0] = rules.automaton.start;
    }
    for (int i = me(); i < words_; i += threads) {
      uint32_t bits = 0;
      RONDO_UNROLL(1)
      for (int c = 32 * i; c < rules.classes && c < 32 * (i + 1); ++c) {
        const bool may = c != rules.blank && (!rules.extends || rules.extends[c]);
        bits |= static_cast<uint32_t>(may) << (c % 32);
      }
      s_.may_extend[i] = bits;
    }
    clear();
    __syncthreads();
    if (me() == 0) enter(b, 0);  // await_fetched() has the barrier
  }

  // The next frame's probabilities and most probable label, in the background.
  __device__ void fetch(const double* p, const int32_t* top, int32_t frame) {
    double* to = s_.frames[frame % 2];
    for (int c = me(); c < rules_.classes; c += threads) cp_async<8>(to + c, p + c);
    if (me() == 0) cp_async<4>(&s_.tops[frame % 2], top);
    cp_async_commit();
  }
  __device__ void await_fetched() {
    cp_async_wait<0>();
    __syncthreads();
  }

  // Whether the scores are numbers; of all threads alike.
  __device__ bool has_scores(int32_t frame) const {
    return s_.frames[frame % 2][rules_.blank] >= 0;
  }

  // Whether the search goes on; of all threads alike. `row`: of the frame.
  __device__ bool advance(int32_t frame, int64_t row) {
    p_ = s_.frames[frame % 2];
    top_ = s_.tops[frame % 2];
    stay();
    __syncthreads();
    bound();
    __syncthreads();
    choose_labels();
    __syncthreads();
    for (;;) {
      collect();
      if (s_.listed <= Shared::list_size) break;
      limit();
    }
    return choose(static_cast<int32_t>(row * rules_.beam));
  }

  __device__ int32_t count() const { return count_; }
  __device__ int32_t exponent() const { return exponent_; }
  __device__ double total(int w) const { return rules_.join(now().blank[w], now().label[w]); }
  __device__ int32_t depth(int w) const { return now().depth[w]; }
  __device__ int32_t state(int w) const { return now().state[w]; }
  __device__ int32_t node(int w) const { return now().node[w]; }

 private:
  __device__ static int me() { return static_cast<int>(threadIdx.x); }
  __device__ Beam<W>& now() const { return s_.beams[side_]; }

  // What a frame finds empty.
  __device__ void clear() {
    for (int i = me(); i < Shared::table_size; i += threads) s_.table[i] = -1;
    for (int i = me(); i < rules_.beam * words_; i += threads) s_.children[i] = 0;
    if (me() == 0) s_.extenders = s_.chosen = 0;
  }

  __device__ static int first_place(uint64_t hash) {
    return static_cast<int>(hash % Shared::table_size);
  }
  // Into what the next frame looks for prefixes in.
  __device__ void enter(const Beam<W>& b, int w) {
    s_.totals[w] = rules_.join(b.blank[w], b.label[w]);
    int at = first_place(b.hash[w]);
    while (atomicCAS(&s_.table[at], -1, w) != -1) at = (at + 1) % Shared::table_size;
  }
  // The prefix of the beam with this hash; -1: none has it.
  __device__ int find(uint64_t hash) const {
    for (int at = first_place(hash);; at = (at + 1) % Shared::table_size) {
      const int found = s_.table[at];
      if (found < 0 || now().hash[found] == hash) return found;
    }
  }

  __device__ void stay() {
    if (me() == 0) s_.listed = count_;
    if (me() >= count_) return;
    const Beam<W>& b = now();
    const int j = me();
    // Asked for now, because it takes a while.
    top_gain_ = 1;
    if (top_ >= 0 && rules_.automaton.gains)
      top_gain_ = rules_.automaton.gains[int64_t{b.state[j]} * rules_.classes + top_];
    blank_ = s_.totals[j] * p_[rules_.blank];
    label_ = 0;
    if (const int32_t last = b.last[j]; last >= 0) {
      label_ = b.label[j] * p_[last];
      if (const int parent = find(b.parent_hash[j]); parent >= 0) {
        atomicAdd(&s_.children[parent * words_ + last / 32], 1u << (last % 32));
        if (p_[last] >= rules_.floor)
          label_ = rules_.join(label_, before(parent, last) * p_[last] * b.gain[j]);
      }
    }
    list(j, rules_.join(blank_, label_), j);
  }

  // The share of a prefix's alignments that a label may follow: the same one again needs a blank
  // in between.
  __device__ double before(int i, int32_t label) const {
    return label == now().last[i] ? now().blank[i] : s_.totals[i];
  }
  __device__ bool is_in_beam(int i, int32_t label) const {
    return s_.children[i * words_ + label / 32] >> (label % 32) & 1;
  }
  __device__ void list(int at, double probability, int32_t id) {
    s_.keys[at] = bits_of(probability);
    s_.high[at] = high_of(probability);
    s_.ids[at] = id;
  }

  __device__ void bound() {
    uint32_t worst = ~0u, best = 0, most = 0;
    if (me() < count_) {
      double better = rules_.join(blank_, label_);
      best = high_of(better);
      most = high_of(s_.totals[me()]);
      if (top_ >= 0 && p_[top_] >= rules_.floor && !is_in_beam(me(), top_))
        better = fmax(better, before(me(), top_) * p_[top_] * top_gain_);
      worst = high_of(better);
    }
    for (int x = 16; x > 0; x /= 2) {
      worst = smaller(worst, __shfl_xor_sync(~0u, worst, x));
      best = larger(best, __shfl_xor_sync(~0u, best, x));
      most = larger(most, __shfl_xor_sync(~0u, most, x));
    }
    if (me() % 32 == 0) {
      s_.partial[0][me() / 32] = worst;
      s_.partial[1][me() / 32] = best;
      s_.partial[2][me() / 32] = most;
    }
  }
  __device__ static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
  __device__ static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

  // Halves are bounds from below; one more is a bound from above.
  __device__ void choose_labels() {
    uint32_t worst = ~0u, best = 0, most = 0;
    for (int i = 0; i < Shared::warps; ++i) {
      worst = smaller(worst, s_.partial[0][i]);
      best = larger(best, s_.partial[1][i]);
      most = larger(most, s_.partial[2][i]);
    }
    at_least_ = fmax(value_of(1), value_of_high(best) * rules_.range);
    if (count_ == rules_.beam) at_least_ = fmax(at_least_, value_of_high(worst));
    limit_key_ = 0;
    limit_id_ = 0;
    const double reach = value_of_high(most + 1) * rules_.automaton.most_gain;
    RONDO_UNROLL(1)
    for (int c = me(); c < rules_.classes; c += threads) {
      if (!(s_.may_extend[c / 32] >> (c % 32) & 1)) continue;
      if (p_[c] >= rules_.floor && p_[c] * reach >= at_least_)
        s_.extending[atomicAdd(&s_.extenders, 1)] = c;
    }
  }

  __device__ static bool is_before(uint64_t key, int32_t id, uint64_t other_key, int32_t other) {
    return key > other_key || (key == other_key && id < other);
  }

  // Two threads for each prefix take turns with the labels. All leave behind a barrier.
  __device__ void collect() {
    constexpr int together = 4;  // labels whose gains are asked for at once
    const int i = me() % W;
    const int extenders = i < count_ ? s_.extenders : 0;
    if (extenders > 0) {
      const Beam<W>& b = now();
      const double total = s_.totals[i], blank = b.blank[i];
      const int32_t last = b.last[i];
      const double* gains = nullptr;
      if (rules_.automaton.gains)
        gains = rules_.automaton.gains + int64_t{b.state[i]} * rules_.classes;
      RONDO_UNROLL(1)
      for (int e = me() / W; e < extenders; e += 2 * together) {
        int32_t labels[together];
        double probabilities[together];
        RONDO_UNROLL_ALL
        for (int k = 0; k < together; ++k) {
          // Behind the last one comes the last once more, and does not count.
          const int at = e + 2 * k < extenders ? e + 2 * k : extenders - 1;
          const int32_t c = s_.extending[at];
          labels[k] = c;
          probabilities[k] = (c == last ? blank : total) * p_[c];
          if (gains) probabilities[k] *= gains[c];
        }
        RONDO_UNROLL_ALL
        for (int k = 0; k < together; ++k)
          if (e + 2 * k < extenders) offer(i, labels[k], probabilities[k]);
      }
    }
    __syncthreads();
  }
  __device__ void offer(int i, int32_t label, double probability) {
    if (!(probability >= at_least_) || is_in_beam(i, label)) return;
    const int32_t id = id_of(i, label);
    if (is_before(limit_key_, limit_id_, bits_of(probability), id)) return;
    const int at = atomicAdd(&s_.listed, 1);
    if (at < Shared::list_size) list(at, probability, id);
  }
  // Of a prefix in this place that grows by a label, behind those of what stays.
  __device__ static int32_t id_of(int i, int32_t label) { return W + (i * most_classes | label); }

  // Of one of the list, within a part of it: how many are better, and how many not worse. Halves
  // are less than 2^31, so the sign of a difference is that of the comparison.
  struct Counts {
    uint32_t high, better = 0, not_worse = 0;
    __device__ void add(uint32_t other) {
      const uint32_t difference = high - other;
      better += difference >> 31;
      not_worse += (difference - 1) >> 31;
    }
  };
  // For rank(). A short list has two threads for each, which count half of it each. All leave
  // behind a barrier.
  __device__ void count_better(int listed) {
    const bool is_short = listed <= W;
    const int part = is_short ? me() / W : 0, half = is_short ? listed / 8 * 4 : listed;
    const int begin = part == 0 ? 0 : half, end = part == 0 ? half : listed;
    RONDO_UNROLL(1)
    for (int of = is_short ? me() % W : me(); of < listed; of += threads) {
      Counts counts{s_.high[of]}, odd = counts;  // two, because each sum waits for itself
      const int quads = (end - begin) / 4;
      RONDO_UNROLL(4)
      for (int q = 0; q < quads; ++q) {
        const auto others = load_words<16>(&s_.high[begin + 4 * q]);
        RONDO_UNROLL_ALL
        for (int k = 0; k < 4; ++k) (k % 2 == 0 ? counts : odd).add(others.w[k]);
      }
      RONDO_UNROLL(1)
      for (int i = begin + 4 * quads; i < end; ++i) counts.add(s_.high[i]);
      s_.better[part][of] = counts.better + odd.better;
      s_.not_worse[part][of] = counts.not_worse + odd.not_worse;
      if (!is_short) s_.better[1][of] = s_.not_worse[1][of] = 0;
    }
    __syncthreads();
  }
  // Halves of keys tell, where no two are alike.
  __device__ int rank(int of, int listed) const {
    const uint32_t better = s_.better[0][of] + s_.better[1][of];
    if (s_.not_worse[0][of] + s_.not_worse[1][of] == better + 1) return static_cast<int>(better);
    int exactly = 0;  // for another one is alike
    RONDO_UNROLL(1)
    for (int i = 0; i < listed; ++i)
      exactly += is_before(s_.keys[i], s_.ids[i], s_.keys[of], s_.ids[of]);
    return exactly;
  }

  // Nothing behind the list's beam-th best can be in the beam.
  __device__ void limit() {
    count_better(Shared::list_size);
    for (int i = me(); i < Shared::list_size; i += threads) {
      if (rank(i, Shared::list_size) != rules_.beam - 1) continue;
      s_.limit_key = s_.keys[i];
      s_.limit_id = s_.ids[i];
    }
    __syncthreads();
    limit_key_ = s_.limit_key;
    limit_id_ = s_.limit_id;
    if (me() == 0) s_.listed = count_;
    __syncthreads();
  }

  // New nodes begin at this one.
  __device__ bool choose(int32_t first_node) {
    constexpr int each = Shared::list_size / threads;
    const int listed = s_.listed;
    count_better(listed);
    int ranks[each];
    for (int k = 0; k < each; ++k) {
      const int i = me() + k * threads;
      ranks[k] = i < listed ? rank(i, listed) : listed;
      if (ranks[k] == 0) s_.best_key = s_.keys[i];
    }
    clear();
    __syncthreads();
    const double best = value_of(s_.best_key);
    if (!(best > 0)) return false;
    const int32_t exponent = scale_of(best);
    for (int k = 0; k < each; ++k) {
      const int i = me() + k * threads;
      if (ranks[k] >= rules_.beam || i >= listed) continue;
      const double probability = value_of(s_.keys[i]);
      if (!(probability > 0) || probability < best * rules_.range) continue;
      take(i, ranks[k], inverse_power(exponent), first_node + ranks[k]);
      enter(s_.beams[side_ ^ 1], ranks[k]);
      atomicMax(&s_.chosen, ranks[k] + 1);
    }
    __syncthreads();
    exponent_ += exponent;
    count_ = s_.chosen;
    side_ ^= 1;
    return true;
  }

  // Of the list into the next beam. What stays is in the place of its thread.
  __device__ void take(int i, int rank, double scale, int32_t node) {
    const Beam<W>& b = now();
    Beam<W>& to = s_.beams[side_ ^ 1];
    const int32_t id = s_.ids[i];
    if (i < count_) {
      to.blank[rank] = blank_ * scale;
      to.label[rank] = label_ * scale;
      to.gain[rank] = b.gain[i];
      to.hash[rank] = b.hash[i];
      to.parent_hash[rank] = b.parent_hash[i];
      to.last[rank] = b.last[i];
      to.depth[rank] = b.depth[i];
      to.node[rank] = b.node[i];
      to.state[rank] = b.state[i];
      return;
    }
    const int from = (id - W) / most_classes;
    const int32_t c = (id - W) % most_classes;
    double gain = 1;
    int32_t state = 0;
    if (rules_.automaton.gains) {  // both asked for at once
      const int64_t known = int64_t{b.state[from]} * rules_.classes + c;
      gain = rules_.automaton.gains[known];
      state = rules_.automaton.next[known];
    }
    to.blank[rank] = 0;
    to.label[rank] = value_of(s_.keys[i]) * scale;
    to.hash[rank] = grown_hash(b.hash[from], c);
    to.parent_hash[rank] = b.hash[from];
    to.last[rank] = c;
    to.depth[rank] = b.depth[from] + 1;
    to.node[rank] = node;
    to.gain[rank] = gain;
    to.state[rank] = state;
    nodes_[node] = {b.node[from], c};
  }

  Shared& s_;
  const Rules& rules_;
  BeamNode* nodes_;
  const int words_;  // of a prefix's bits of children
  const double* p_ = nullptr;
  // The same in all threads.
  int side_ = 0;
  int32_t count_ = 1, exponent_ = 0;
  int32_t top_ = -1;        // label of the frame
  double at_least_ = 0;     // what comes into the beam has it
  uint64_t limit_key_ = 0;  // and what has less than this does not
  int32_t limit_id_ = 0;
  // Of the prefix in this thread's place.
  double blank_ = 0, label_ = 0, top_gain_ = 1;
};

}  // namespace
}  // namespace rondo::RONDO_GPU
