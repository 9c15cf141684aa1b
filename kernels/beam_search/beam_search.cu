// Prefix beam search, a block for each sequence, the loop over its frames inside.
//
// The beam lies in shared memory twice, before and after a frame. Per frame, with barriers between:
//   enter    hashes of the beam's prefixes into a table
//   stay     a thread for each prefix: what stays, and what its parent, found in the table, adds
//   label    which classes are probable enough to extend anything
//   collect  a warp for each prefix, a lane for each class: what grows into something new, is above
//            the threshold and goes into the list, behind all that stay. Where the list is too
//            short, its beam-th best becomes the threshold, and they are collected once more
//   rank     a thread for each of the list counts the better ones
//   choose   the first `beam` are the beam
// The order within the list depends on which warp comes first, its ranks do not.
#include "kernels/base/check_view.h"
#include "kernels/beam_search/beam_search_impl.h"
#include "kernels/simt/simt.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int most_classes = beam_search_most_classes;
constexpr uint64_t empty_hash = 0x243f6a8885a308d3u;

// ---- softmax ----

constexpr int softmax_warps = 8;

// A warp for each row. A NaN among the scores, or no finite largest one, makes all of it NaN.
template <class T>
__global__ void frame_probabilities(double* p, const T* scores, PackedView layout, int classes) {
  const int lane = threadIdx.x % 32;
  const int64_t rows = layout.extent->rows, stride = int64_t{gridDim.x} * softmax_warps;
  for (int64_t r = int64_t{blockIdx.x} * softmax_warps + threadIdx.x / 32; r < rows; r += stride) {
    const T* from = scores + r * classes;
    double largest = -INFINITY, sum = 0;
    for (int c = lane; c < classes; c += 32)
      largest = fmax(largest, static_cast<double>(to_float(from[c])));
    for (int x = 16; x > 0; x /= 2) largest = fmax(largest, __shfl_xor_sync(~0u, largest, x));
    for (int c = lane; c < classes; c += 32) {
      const double e = exp(static_cast<double>(to_float(from[c])) - largest);
      p[r * classes + c] = e;
      sum += e;
    }
    for (int x = 16; x > 0; x /= 2) sum += __shfl_xor_sync(~0u, sum, x);
    for (int c = lane; c < classes; c += 32) p[r * classes + c] /= sum;
  }
}

// ---- the search ----

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
  double totals[W];
  // What may be in the next beam: probabilities as bits, which order them, and numbers that say
  // which comes first of equal ones: of what stays the place in the beam, then beam + place *
  // classes + label.
  uint64_t keys[list_size];
  int32_t ids[list_size];
  int32_t table[table_size];                   // places in the beam by hash; -1: none
  uint32_t children[W * (most_classes / 32)];  // bits of the labels that lead to one of the beam
  int32_t extending[most_classes];
  double partial[3][warps];
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
    clear();  // await_fetched() has the barrier
  }

  // The next frame's probabilities, in the background.
  __device__ void fetch(const double* p, int32_t frame) {
    double* to = s_.frames[frame % 2];
    for (int c = me(); c < rules_.classes; c += threads) cp_async<8>(to + c, p + c);
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
    enter();
    __syncthreads();
    stay();
    __syncthreads();
    choose_labels();
    __syncthreads();
    collect();
    while (s_.listed > Shared::list_size) {
      limit();
      collect();
    }
    return choose(static_cast<int32_t>(row * rules_.beam));
  }

  __device__ int32_t count() const { return count_; }
  __device__ int32_t exponent() const { return exponent_; }
  __device__ double total(int w) const { return rules_.join(now().blank[w], now().label[w]); }
  __device__ int32_t depth(int w) const { return now().depth[w]; }
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
  __device__ void enter() {
    if (me() == 0) s_.listed = count_;
    if (me() >= count_) return;
    const Beam<W>& b = now();
    s_.totals[me()] = rules_.join(b.blank[me()], b.label[me()]);
    int at = first_place(b.hash[me()]);
    while (atomicCAS(&s_.table[at], -1, me()) != -1) at = (at + 1) % Shared::table_size;
  }
  // The prefix of the beam with this hash; -1: none has it.
  __device__ int find(uint64_t hash) const {
    for (int at = first_place(hash);; at = (at + 1) % Shared::table_size) {
      const int found = s_.table[at];
      if (found < 0 || now().hash[found] == hash) return found;
    }
  }

  __device__ void stay() {
    double worst = INFINITY, best = 0, most = 0;
    if (me() < count_) {
      const Beam<W>& b = now();
      const int j = me();
      most = s_.totals[j];
      blank_ = most * p_[rules_.blank];
      label_ = 0;
      if (const int32_t last = b.last[j]; last >= 0) {
        label_ = b.label[j] * p_[last];
        if (const int parent = find(b.parent_hash[j]); parent >= 0) {
          atomicAdd(&s_.children[parent * words_ + last / 32], 1u << (last % 32));
          // The same label again needs a blank in between.
          const double from = last == b.last[parent] ? b.blank[parent] : s_.totals[parent];
          if (p_[last] >= rules_.floor) label_ = rules_.join(label_, from * p_[last] * b.gain[j]);
        }
      }
      worst = best = rules_.join(blank_, label_);
      s_.keys[j] = bits_of(best);
      s_.ids[j] = j;
    }
    for (int x = 16; x > 0; x /= 2) {
      worst = fmin(worst, __shfl_xor_sync(~0u, worst, x));
      best = fmax(best, __shfl_xor_sync(~0u, best, x));
      most = fmax(most, __shfl_xor_sync(~0u, most, x));
    }
    if (me() % 32 == 0) {
      s_.partial[0][me() / 32] = worst;
      s_.partial[1][me() / 32] = best;
      s_.partial[2][me() / 32] = most;
    }
  }

  // What stays sets a threshold for what is new.
  __device__ void choose_labels() {
    double worst = INFINITY, best = 0, most = 0;
    for (int i = 0; i < Shared::warps; ++i) {
      worst = fmin(worst, s_.partial[0][i]);
      best = fmax(best, s_.partial[1][i]);
      most = fmax(most, s_.partial[2][i]);
    }
    above_ = count_ == rules_.beam ? worst : 0;
    at_least_ = best * rules_.range;
    limit_key_ = 0;
    limit_id_ = 0;
    most *= rules_.automaton.most_gain;
    for (int c = me(); c < rules_.classes; c += threads) {
      if (c == rules_.blank || (rules_.extends && !rules_.extends[c])) continue;
      if (p_[c] >= rules_.floor && may_enter(p_[c] * most))
        s_.extending[atomicAdd(&s_.extenders, 1)] = c;
    }
  }
  __device__ bool may_enter(double probability) const {
    return probability > above_ && probability >= at_least_;
  }

  __device__ static bool is_before(uint64_t key, int32_t id, uint64_t other_key, int32_t other) {
    return key > other_key || (key == other_key && id < other);
  }

  // All threads leave behind a barrier.
  __device__ void collect() {
    const Beam<W>& b = now();
    for (int i = me() / 32; i < count_; i += Shared::warps) {
      const double total = s_.totals[i], blank = b.blank[i];
      const int32_t last = b.last[i];
      const int64_t known = int64_t{b.state[i]} * rules_.classes;
      for (int e = me() % 32; e < s_.extenders; e += 32) {
        const int32_t c = s_.extending[e];
        if (s_.children[i * words_ + c / 32] >> (c % 32) & 1) continue;
        double probability = (c == last ? blank : total) * p_[c];
        if (rules_.automaton.gains) probability *= rules_.automaton.gains[known + c];
        if (!may_enter(probability)) continue;
        const uint64_t key = bits_of(probability);
        const int32_t id = rules_.beam + i * rules_.classes + c;
        if (is_before(limit_key_, limit_id_, key, id)) continue;
        const int at = atomicAdd(&s_.listed, 1);
        if (at < Shared::list_size) {
          s_.keys[at] = key;
          s_.ids[at] = id;
        }
      }
    }
    __syncthreads();
  }

  // How many of the list are better; those past its end are not there.
  __device__ int rank(uint64_t key, int32_t id, int listed) const {
    int better = 0;
    for (int i = 0; i < listed; ++i) better += is_before(s_.keys[i], s_.ids[i], key, id);
    return better;
  }

  // Nothing behind the list's beam-th best can be in the beam.
  __device__ void limit() {
    for (int i = me(); i < Shared::list_size; i += threads) {
      if (rank(s_.keys[i], s_.ids[i], Shared::list_size) != rules_.beam - 1) continue;
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
    int ranks[each];
    for (int k = 0; k < each; ++k) {
      const int i = me() + k * threads;
      ranks[k] = i < listed ? rank(s_.keys[i], s_.ids[i], listed) : listed;
      if (ranks[k] == 0) s_.best_key = s_.keys[i];
    }
    clear();
    __syncthreads();
    const double best = value_of(s_.best_key);
    if (!(best > 0)) return false;
    int exponent;
    frexp(best, &exponent);
    if (abs(exponent) < 32) exponent = 0;
    for (int k = 0; k < each; ++k) {
      const int i = me() + k * threads;
      if (ranks[k] >= rules_.beam || i >= listed) continue;
      const double probability = value_of(s_.keys[i]);
      if (!(probability > 0) || probability < best * rules_.range) continue;
      take(i, ranks[k], -exponent, first_node + ranks[k]);
      atomicMax(&s_.chosen, ranks[k] + 1);
    }
    __syncthreads();
    exponent_ += exponent;
    count_ = s_.chosen;
    side_ ^= 1;
    return true;
  }

  // Of the list into the next beam. What stays is in the place of its thread.
  __device__ void take(int i, int rank, int exponent, int32_t node) {
    const Beam<W>& b = now();
    Beam<W>& to = s_.beams[side_ ^ 1];
    const int32_t id = s_.ids[i];
    if (i < count_) {
      to.blank[rank] = ldexp(blank_, exponent);
      to.label[rank] = ldexp(label_, exponent);
      to.gain[rank] = b.gain[i];
      to.hash[rank] = b.hash[i];
      to.parent_hash[rank] = b.parent_hash[i];
      to.last[rank] = b.last[i];
      to.depth[rank] = b.depth[i];
      to.node[rank] = b.node[i];
      to.state[rank] = b.state[i];
      return;
    }
    const int from = (id - rules_.beam) / rules_.classes;
    const int32_t c = (id - rules_.beam) % rules_.classes;
    const int64_t known = int64_t{b.state[from]} * rules_.classes + c;
    to.blank[rank] = 0;
    to.label[rank] = ldexp(value_of(s_.keys[i]), exponent);
    to.gain[rank] = rules_.automaton.gains ? rules_.automaton.gains[known] : 1;
    to.hash[rank] = grown_hash(b.hash[from], c);
    to.parent_hash[rank] = b.hash[from];
    to.last[rank] = c;
    to.depth[rank] = b.depth[from] + 1;
    to.node[rank] = node;
    to.state[rank] = rules_.automaton.next ? rules_.automaton.next[known] : 0;
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
  double above_ = 0, at_least_ = 0;  // what comes into the beam
  uint64_t limit_key_ = 0;           // and what does not
  int32_t limit_id_ = 0;
  // Of the prefix in this thread's place.
  double blank_ = 0, label_ = 0;
};

struct Results {
  int32_t *counts, *stopped, *exponents, *lengths, *labels;
  double* probabilities;
};

template <int W>
__global__ void __launch_bounds__(2 * W)
    search(Rules rules, PackedView layout, const double* p, BeamNode* nodes, Results to) {
  const int64_t n = blockIdx.x;
  const int32_t length = n < layout.extent->sequences ? layout.lengths[n] : 0;
  const auto row = [&](int32_t t) { return layout.row_offsets[t] + n; };
  BeamSearch<W> search(rules, nodes);
  int32_t stopped = -1;
  bool has_scores = true;
  if (length > 0) search.fetch(p + row(0) * rules.classes, 0);
  for (int32_t t = 0; t < length; ++t) {
    search.await_fetched();
    if (t + 1 < length) search.fetch(p + row(t + 1) * rules.classes, t + 1);
    has_scores = search.has_scores(t);
    if (has_scores && search.advance(t, row(t))) continue;
    stopped = t;
    break;
  }
  cp_async_wait<0>();
  const int32_t count = has_scores ? search.count() : 0;
  if (threadIdx.x == 0) {
    to.counts[n] = count;
    to.stopped[n] = stopped;
    to.exponents[n] = search.exponent();
  }
  for (int w = static_cast<int>(threadIdx.x); w < rules.beam; w += 2 * W) {
    const int64_t place = n * rules.beam + w;
    const int32_t depth = w < count ? search.depth(w) : 0;
    to.probabilities[place] = w < count ? search.total(w) : 0;
    to.lengths[place] = depth;
    int32_t node = w < count ? search.node(w) : -1;
    for (int32_t i = depth - 1; i >= 0; --i) {
      to.labels[row(i) * rules.beam + w] = nodes[node].label;
      node = nodes[node].parent;
    }
  }
}

template <int W>
void launch_search(const Context& context, const BeamSearchArgs& a,
                   const BeamSearchWorkspace& workspace) {
  const Rules rules = {.classes = static_cast<int32_t>(a.scores.dim(1)),
                       .beam = a.beam,
                       .blank = a.blank,
                       .sum = a.sum,
                       .floor = a.floor,
                       .range = a.range,
                       .extends = a.extends,
                       .automaton = a.automaton};
  const Results to = {.counts = a.counts.as<int32_t>(),
                      .stopped = a.stopped.as<int32_t>(),
                      .exponents = a.exponents.as<int32_t>(),
                      .lengths = a.lengths.as<int32_t>(),
                      .labels = a.labels.as<int32_t>(),
                      .probabilities = a.probabilities.as<double>()};
  launch(context,
         {.kernel = "beam_search",
          .grid = {static_cast<unsigned>(a.layout.capacity.sequences)},
          .block = {2 * W},
          .shared_bytes = sizeof(SearchShared<W>)},
         search<W>, rules, a.layout, workspace.probabilities, workspace.nodes, to);
}

}  // namespace

void beam_search_gpu(const Context& context, const BeamSearchArgs& a) {
  check_beam_search(a);
  const PackedCapacity& capacity = a.layout.capacity;
  const int64_t classes = a.scores.dim(1);
  if (capacity.sequences == 0) return;
  const BeamSearchWorkspace workspace(a.workspace.data, capacity.rows, classes, a.beam);
  if (a.labels.numel() > 0) fill_bytes(context, a.labels.data, 0xff, a.labels.bytes());
  if (capacity.rows > 0) {
    const auto convert = [&]<class T>(T) {
      launch(context,
             {.kernel = "frame_probabilities",
              .grid = {std::min(blocks_for(capacity.rows, softmax_warps), 132u * 8)},
              .block = {32 * softmax_warps}},
             frame_probabilities<T>, workspace.probabilities, a.scores.as<T>(), a.layout,
             static_cast<int>(classes));
    };
    a.scores.dtype == DType::f32 ? convert(float{}) : convert(bf16{});
  }
  if (a.beam <= 32) {
    launch_search<32>(context, a, workspace);
  } else {
    launch_search<beam_search_most_beam>(context, a, workspace);
  }
}

}  // namespace rondo::RONDO_GPU
