#include "kernels/lstm/stack/lstm_wavefront.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/dispatch.h"
#include "kernels/lstm/lstm_conditions.h"
#include "kernels/lstm/lstm_cpu.h"
#include "kernels/lstm/lstm_gpu.h"

namespace rondo {
namespace {

// What a diagonal takes beside its products and steps, in steps: with C frames to a chunk, T / C +
// L - 1 diagonals of C + `idle_steps` are the fewest for C = sqrt(idle_steps T / (L - 1)).
constexpr double idle_steps = 12;

int64_t chunk_frames_of(int64_t layers, int64_t frames) {
  const double best = std::sqrt(idle_steps * static_cast<double>(frames) /
                                static_cast<double>(std::max<int64_t>(layers - 1, 1)));
  return std::max<int64_t>(round_up(static_cast<int64_t>(std::ceil(best)), int64_t{4}), 4);
}

constexpr bool is_forward(LstmPhase phase) { return phase == LstmPhase::forward; }

// The numbers of a row of LstmWavefrontSpace::rows and ::made.
int64_t read_width(const LstmWavefront& w, LstmPhase phase) {
  return is_forward(phase) ? std::max(w.input, w.hidden) : 4 * w.hidden;
}
int64_t made_width(const LstmWavefront& w, LstmPhase phase) {
  return is_forward(phase) ? 4 * w.hidden : w.hidden;
}

// Of one layer's chunk. Forward x W^T, W [4H, input]; backward dgates W.
GemmArgs product(const LstmWavefront& w, LstmPhase phase, DType t, int64_t input) {
  const int64_t gates = 4 * w.hidden;
  GemmArgs g = is_forward(phase) ? lstm_product(w.chunk_rows, gates, input, t, t)
                                 : lstm_product(w.chunk_rows, input, gates, t, t);
  g.transpose_b = is_forward(phase);
  g.lda = g.k, g.ldb = input, g.ldc = g.n;
  return g;
}

// dx of the lowest layer over all rows.
GemmArgs input_gradient(const LstmWavefront& w, DType t, int64_t rows) {
  GemmArgs g = product(w, LstmPhase::backward, t, w.input);
  g.m = rows;
  return g;
}

LstmWavefrontSpace place(Carver& carver, const Context& context, LstmPhase phase,
                         const LstmWavefront& w, DType t, int64_t rows) {
  const int64_t states = w.layers * w.sequences * w.hidden;
  const int64_t below = is_forward(phase) ? w.layers : w.layers - 1;
  LstmWavefrontSpace s;
  s.extents = carver.take<PackedExtent>(w.chunks, sizeof(PackedExtent));
  s.lengths = carver.take<int32_t>(w.chunks * w.sequences, sizeof(int32_t));
  s.rows = carver.take(w.layers * w.chunk_rows * read_width(w, phase), size_of(t));
  s.made = carver.take(below * w.chunk_rows * made_width(w, phase), size_of(t));
  s.h = is_forward(phase) ? carver.take(states, size_of(t)) : nullptr;
  s.dh = is_forward(phase) ? nullptr : carver.take<float>(states, sizeof(float));
  s.c = carver.take<float>(states, sizeof(float));
  GemmArgs several = product(w, phase, t, w.hidden);
  several.batch = w.layers;
  s.gemm_bytes = std::max(gemm_workspace_bytes(context, several),
                          gemm_workspace_bytes(context, product(w, phase, t, w.hidden)));
  s.gemm_bytes = std::max(
      s.gemm_bytes, gemm_workspace_bytes(context, is_forward(phase) ? product(w, phase, t, w.input)
                                                                    : input_gradient(w, t, rows)));
  s.gemm = carver.take(s.gemm_bytes);
  return s;
}

void* at_element(void* base, int64_t element, DType t) {
  return static_cast<std::byte*>(base) + static_cast<size_t>(element) * size_of(t);
}

// Elements from W of each layer of [first, end) to that of the next; 0: they do not lie in equal
// steps.
template <class Layers>
int64_t step_of_weights(const Layers& layers, int first, int end) {
  const auto address = [&](int l) {
    return static_cast<const std::byte*>(layers[static_cast<size_t>(l)].weights[0].w.data);
  };
  const auto size = static_cast<int64_t>(size_of(lstm_compute_dtype(layers.front())));
  const int64_t bytes = address(first + 1) - address(first);
  for (int l = first + 1; l + 1 < end; ++l) {
    if (address(l + 1) - address(l) != bytes) return 0;
  }
  return bytes % size == 0 ? bytes / size : 0;
}

template <class Args>
constexpr LstmPhase phase_of =
    std::is_same_v<Args, LstmStackForwardArgs> ? LstmPhase::forward : LstmPhase::backward;

// Products of the layers [first, end) of a diagonal, of one shape. What one makes goes to the layer
// itself, or backward to the one below.
template <class Args>
void multiply(const Context& context, const Args& a, const LstmWavefrontSpace& space,
              const LstmDiagonal& diagonal, int first, int end) {
  constexpr LstmPhase phase = phase_of<Args>;
  if (first >= end) return;
  const LstmWavefront w = lstm_wavefront(a);
  const auto& layer = a.layers[static_cast<size_t>(first)];
  const DType t = lstm_compute_dtype(layer);
  GemmArgs g = product(w, phase, t, layer.dims.input);
  g.spare_rows = true;
  g.a = lstm_wavefront_rows(w, space, phase, t, first);
  g.b = layer.weights[0].w.data;
  g.c = lstm_wavefront_made(w, space, phase, t, is_forward(phase) ? first : first - 1);
  g.row_count = &space.extents[diagonal.number - first].rows;
  if (is_forward(phase) && t == DType::f32) g.bias = layer.weights[0].b;  // else the loops add it
  g.a_stride = w.chunk_rows * read_width(w, phase);
  g.c_stride = w.chunk_rows * made_width(w, phase);
  g.row_count_stride = -static_cast<int64_t>(sizeof(PackedExtent) / sizeof(int32_t));
  lstm_set_gemm_workspace(g, space);
  // Products of one call have one bias, and their b in equal steps.
  if (end - first > 1 && !g.bias) {
    g.b_stride = step_of_weights(a.layers, first, end);
  }
  g.batch = g.b_stride != 0 ? end - first : 1;
  run(context, g);
  multiply(context, a, space, diagonal, first + static_cast<int>(g.batch), end);
}

template <class Args>
LstmWavefront wavefront_of(const Args& a) {
  std::vector<LstmDims> dims;
  for (const auto& layer : a.layers) dims.push_back(layer.dims);
  return lstm_wavefront(dims, a.layers.front().layout.capacity);
}

template <class Args>
LstmWavefrontSpace space_of(const Context& context, const Args& a) {
  Carver carver(a.workspace.data);
  const auto s = place(carver, context, phase_of<Args>, wavefront_of(a),
                       lstm_compute_dtype(a.layers.front()), a.layers.front().layout.capacity.rows);
  lstm_check_workspace(a.workspace, carver.used());
  return s;
}

template <class Args>
bool suits(Backend backend, const Args& a) {
  const auto& lowest = a.layers.front();
  if (a.layers.size() < 2 || a.layers.size() > lstm_stack_layers) return false;
  for (const auto& layer : a.layers) {
    if (layer.dims.hidden != lowest.dims.hidden || layer.dims.projection != 0) return false;
  }
  return wavefront_of(a).chunks >= 2 &&
         lstm_suits("cluster_split", backend, lowest.dims, lstm_compute_dtype(lowest));
}

}  // namespace

LstmDiagonal lstm_diagonal(const LstmWavefront& w, LstmPhase phase, int64_t i) {
  const int64_t number = is_forward(phase) ? i : w.diagonals() - 1 - i;
  const int64_t first = std::max<int64_t>(number - w.chunks + 1, 0);
  return {number, static_cast<int>(first), static_cast<int>(std::min(number + 1, w.layers))};
}

LstmWavefront lstm_wavefront(std::span<const LstmDims> layers, const PackedCapacity& capacity) {
  LstmWavefront w;
  w.layers = static_cast<int64_t>(layers.size());
  w.hidden = layers.front().hidden;
  w.input = layers.front().input;
  w.sequences = capacity.sequences;
  w.chunk_frames = chunk_frames_of(w.layers, capacity.frames);
  w.chunks = (capacity.frames + w.chunk_frames - 1) / w.chunk_frames;
  w.chunk_rows = std::min(capacity.rows, w.chunk_frames * w.sequences);
  return w;
}
LstmWavefront lstm_wavefront(const LstmStackForwardArgs& a) { return wavefront_of(a); }
LstmWavefront lstm_wavefront(const LstmStackBackwardArgs& a) { return wavefront_of(a); }

size_t lstm_wavefront_bytes(const Context& context, LstmPhase phase, const LstmWavefront& w,
                            DType compute, const PackedCapacity& capacity) {
  Carver carver(nullptr);
  place(carver, context, phase, w, compute, capacity.rows);
  return carver.used();
}

LstmWavefrontSpace lstm_wavefront_space(const Context& context, const LstmStackForwardArgs& a) {
  return space_of(context, a);
}
LstmWavefrontSpace lstm_wavefront_space(const Context& context, const LstmStackBackwardArgs& a) {
  return space_of(context, a);
}

void* lstm_wavefront_rows(const LstmWavefront& w, const LstmWavefrontSpace& s, LstmPhase phase,
                          DType t, int64_t layer) {
  return at_element(s.rows, layer * w.chunk_rows * read_width(w, phase), t);
}

void* lstm_wavefront_made(const LstmWavefront& w, const LstmWavefrontSpace& s, LstmPhase phase,
                          DType t, int64_t layer) {
  return at_element(s.made, layer * w.chunk_rows * made_width(w, phase), t);
}

void lstm_wavefront_products(const Context& context, const LstmStackForwardArgs& a,
                             const LstmWavefrontSpace& space, const LstmDiagonal& diagonal) {
  // The lowest layer's x may have another width.
  const int others = std::max(diagonal.first, 1);
  if (diagonal.first == 0) multiply(context, a, space, diagonal, 0, 1);
  multiply(context, a, space, diagonal, others, diagonal.end);
}

void lstm_wavefront_products(const Context& context, const LstmStackBackwardArgs& a,
                             const LstmWavefrontSpace& space, const LstmDiagonal& diagonal) {
  multiply(context, a, space, diagonal, std::max(diagonal.first, 1), diagonal.end);
}

void lstm_wavefront_input_gradient(const Context& context, const LstmStackBackwardArgs& a,
                                   const LstmWavefrontSpace& space) {
  LstmGpuBackwardSpace products{};
  products.gemm = space.gemm;
  products.gemm_bytes = space.gemm_bytes;
  lstm_gpu_input_gradients(context, a.layers.front(), products);
}

bool lstm_wavefront_suits(Backend backend, const LstmStackForwardArgs& a) {
  return suits(backend, a);
}
bool lstm_wavefront_suits(Backend backend, const LstmStackBackwardArgs& a) {
  return suits(backend, a);
}

}  // namespace rondo
