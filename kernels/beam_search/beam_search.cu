// Prefix beam search: softmax of the frames, then a block for each sequence, the loop over its
// frames inside (beam_search_gpu.h).
#include <algorithm>

#include "kernels/base/check_view.h"
#include "kernels/beam_search/beam_search_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- softmax ----

constexpr int softmax_warps = 8;

// A warp for each row. A NaN among the scores, or no finite largest one, makes all of it NaN. Also
// finds the most probable of the classes that may extend; -1: there is none.
template <class T>
__global__ void frame_probabilities(double* p, int32_t* top, const T* scores, PackedView layout,
                                    int classes, int blank, const uint8_t* extends) {
  const int lane = threadIdx.x % 32;
  const int64_t rows = layout.extent->rows, stride = int64_t{gridDim.x} * softmax_warps;
  for (int64_t r = int64_t{blockIdx.x} * softmax_warps + threadIdx.x / 32; r < rows; r += stride) {
    const T* from = scores + r * classes;
    double largest = -INFINITY, sum = 0, most = -INFINITY;
    int best = -1;
    for (int c = lane; c < classes; c += 32) {
      const double score = static_cast<double>(to_float(from[c]));
      largest = fmax(largest, score);
      if (c == blank || (extends && !extends[c]) || !(score > most)) continue;
      most = score;
      best = c;
    }
    for (int x = 16; x > 0; x /= 2) {
      largest = fmax(largest, __shfl_xor_sync(~0u, largest, x));
      const double other = __shfl_xor_sync(~0u, most, x);
      const int label = __shfl_xor_sync(~0u, best, x);
      if (!(other > most) && (other != most || label >= best)) continue;
      most = other;
      best = label;
    }
    for (int c = lane; c < classes; c += 32) {
      const double e = exp(static_cast<double>(to_float(from[c])) - largest);
      p[r * classes + c] = e;
      sum += e;
    }
    for (int x = 16; x > 0; x /= 2) sum += __shfl_xor_sync(~0u, sum, x);
    for (int c = lane; c < classes; c += 32) p[r * classes + c] /= sum;
    if (lane == 0) top[r] = best;
  }
}

// ---- the search ----

struct Results {
  int32_t *counts, *stopped, *exponents, *lengths, *states, *labels;
  double* probabilities;
};

template <int W>
__global__ void __launch_bounds__(2 * W, 1)
    search(Rules rules, PackedView layout, const double* p, const int32_t* tops, BeamNode* nodes,
           Results to) {
  const int64_t n = blockIdx.x;
  const int32_t length = n < layout.extent->sequences ? layout.lengths[n] : 0;
  BeamSearch<W> search(rules, nodes);
  int32_t stopped = -1;
  bool has_scores = true;
  // Where the rows of this frame, the next and the one behind it begin, each asked for long before
  // it is used.
  int32_t here = 0, next = length > 1 ? layout.row_offsets[1] : 0;
  if (length > 0) search.fetch(p + n * rules.classes, tops + n, 0);
  for (int32_t t = 0; t < length; ++t) {
    const int32_t behind = t + 2 < length ? layout.row_offsets[t + 2] : 0;
    search.await_fetched();
    if (const int64_t row = next + n; t + 1 < length)
      search.fetch(p + row * rules.classes, tops + row, t + 1);
    has_scores = search.has_scores(t);
    if (has_scores && search.advance(t, here + n)) {
      here = next;
      next = behind;
      continue;
    }
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
    to.states[place] = w < count ? search.state(w) : 0;
    int32_t node = w < count ? search.node(w) : -1;
    for (int32_t i = depth - 1; i >= 0; --i) {
      to.labels[(layout.row_offsets[i] + n) * rules.beam + w] = nodes[node].label;
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
                      .states = a.states.as<int32_t>(),
                      .labels = a.labels.as<int32_t>(),
                      .probabilities = a.probabilities.as<double>()};
  launch(context,
         {.kernel = "beam_search",
          .grid = {static_cast<unsigned>(a.layout.capacity.sequences)},
          .block = {2 * W},
          .shared_bytes = sizeof(SearchShared<W>)},
         search<W>, rules, a.layout, workspace.probabilities, workspace.tops, workspace.nodes, to);
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
             frame_probabilities<T>, workspace.probabilities, workspace.tops, a.scores.as<T>(),
             a.layout, static_cast<int>(classes), a.blank, a.extends);
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
