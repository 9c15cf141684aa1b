#include "kernels/conv/edge_frames.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/base/cpu/parallel.h"
#include "kernels/conv/edge_frames_impl.h"

namespace rondo {
namespace {

bool edge_frames_grad_accepts(const Context&, const void* args) {
  if (!args) return true;
  const auto& a = *static_cast<const EdgeFramesGradArgs*>(args);
  return (a.dtail ? a.dtail : a.dhead).dtype != DType::f64;
}

void check_edge(const PackedView& layout, const TensorView& rows,
                std::initializer_list<const TensorView*> edges) {
  for (const TensorView* edge : edges) {
    if (!*edge) continue;
    RONDO_CHECK(edge->rank == 3 && edge->dim(1) == layout.capacity.sequences &&
                    (!rows || (edge->dtype == rows.dtype && edge->dim(2) == rows.dim(1))),
                "edge_frames: rank ", edge->rank, " and type ", name_of(edge->dtype));
  }
}

// An edge as windows of one frame: of the frames behind a sequence, as many earlier as it has, or
// of those before it, as many later.
ConvWindows edge_of(const PackedView& layout, const TensorView& rows, const TensorView& before,
                    const TensorView& edge, ConvPart part) {
  ConvWindows w;
  if (!edge) return w;
  const auto frames = static_cast<int32_t>(edge.dim(0));
  w.targets = {part, layout, frames};
  w.source = conv_source(layout, rows, before);
  w.taps.offset = part == ConvPart::after ? -frames : frames;
  w.cols = edge.dim(2);
  w.dtype = edge.dtype;
  w.rows = w.targets.capacity();
  w.windows = edge.data;
  return w;
}

template <class T>
void add_edge(const Context& context, const ConvWindows& edge) {
  const int64_t cols = edge.cols;
  // A frame is in an edge once, so rows can be added in any order.
  context.pool->for_range(edge.rows, 8192 / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const ConvPlace place = conv_window_place(edge, r, 0);
      T* to = static_cast<T*>(const_cast<void*>(conv_array(edge.source, place.part)));
      if (place.part == ConvPart::none || to == nullptr) continue;
      to += place.row * cols;
      const T* from = static_cast<const T*>(edge.windows) + r * cols;
      for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<T>(double(to[c]) + double(from[c]));
    }
  });
}

// f(row of the edge, its frame, its sequence, that sequence's length) for the reference.
template <class T, class F>
void for_edge_frames(const PackedView& layout, const TensorView& edge, F f) {
  if (!edge) return;
  const int64_t sequences = layout.capacity.sequences;
  for (int64_t j = 0; j < edge.dim(0); ++j) {
    for (int64_t n = 0; n < layout.extent->sequences; ++n) {
      f(edge.as<T>() + (j * sequences + n) * edge.dim(2), j, n, layout.lengths[n]);
    }
  }
}

template <class T>
void edges_as(const EdgeFramesArgs& a) {
  const int64_t cols = a.x.dim(1), sequences = a.layout.capacity.sequences;
  for (const TensorView* edge : {&a.tail, &a.head}) {
    if (*edge) std::fill_n(edge->as<T>(), edge->numel(), T(0.0f));
  }
  const auto copy = [&](T* to, const T* from) { std::copy_n(from, cols, to); };
  const auto frame = [&](int64_t t, int64_t n) {
    return a.x.as<T>() + (a.layout.row_offsets[t] + n) * cols;
  };
  for_edge_frames<T>(a.layout, a.tail, [&](T* to, int64_t j, int64_t n, int64_t length) {
    const int64_t t = length - a.tail.dim(0) + j;
    if (t >= 0) return copy(to, frame(t, n));
    if (a.before) copy(to, a.before.as<T>() + ((length + j) * sequences + n) * cols);
  });
  for_edge_frames<T>(a.layout, a.head, [&](T* to, int64_t j, int64_t n, int64_t length) {
    if (j < length) copy(to, frame(j, n));
  });
}

template <class T>
void edges_grad_as(const EdgeFramesGradArgs& a) {
  const int64_t sequences = a.layout.capacity.sequences;
  const auto add = [](const TensorView& to, int64_t row, const T* from, int64_t cols) {
    if (!to) return;
    T* x = to.as<T>() + row * cols;
    for (int64_t c = 0; c < cols; ++c) {
      x[c] = static_cast<T>(static_cast<double>(x[c]) + static_cast<double>(from[c]));
    }
  };
  for_edge_frames<T>(a.layout, a.dtail, [&](T* from, int64_t j, int64_t n, int64_t length) {
    const int64_t t = length - a.dtail.dim(0) + j, cols = a.dtail.dim(2);
    if (t >= 0) return add(a.dx, a.layout.row_offsets[t] + n, from, cols);
    add(a.dbefore, (length + j) * sequences + n, from, cols);
  });
  for_edge_frames<T>(a.layout, a.dhead, [&](T* from, int64_t j, int64_t n, int64_t length) {
    if (j < length) add(a.dx, a.layout.row_offsets[j] + n, from, a.dhead.dim(2));
  });
}

}  // namespace

std::array<ConvWindows, 2> edges_of(const EdgeFramesArgs& a) {
  check_edge(a.layout, a.x, {&a.before, &a.tail, &a.head});
  return {edge_of(a.layout, a.x, a.before, a.tail, ConvPart::after),
          edge_of(a.layout, a.x, {}, a.head, ConvPart::before)};
}
std::array<ConvWindows, 2> edges_of(const EdgeFramesGradArgs& a) {
  check_edge(a.layout, a.dx, {&a.dbefore, &a.dtail, &a.dhead});
  return {edge_of(a.layout, a.dx, a.dbefore, a.dtail, ConvPart::after),
          edge_of(a.layout, a.dx, {}, a.dhead, ConvPart::before)};
}

void edge_frames_ref(const Context&, const EdgeFramesArgs& a) {
  visit_floating(a.x.dtype, [&]<class T>(T) { edges_as<T>(a); });
}

void edge_frames_grad_ref(const Context&, const EdgeFramesGradArgs& a) {
  visit_floating((a.dtail ? a.dtail : a.dhead).dtype, [&]<class T>(T) { edges_grad_as<T>(a); });
}

void edge_frames_cpu(const Context& context, const EdgeFramesArgs& a) {
  for_edges(a, [&](const ConvWindows& edge) { conv_copy_windows(context, edge); });
}

void edge_frames_grad_cpu(const Context& context, const EdgeFramesGradArgs& a) {
  for_edges(a, [&](const ConvWindows& edge) {
    visit_floating(edge.dtype, [&]<class T>(T) { add_edge<T>(context, edge); });
  });
}

std::span<const Variant> edge_frames_variants() {
  static constexpr Variant variants[] = {
      variant<EdgeFramesArgs, edge_frames_ref>("ref", Backend::ref),
      variant<EdgeFramesArgs, edge_frames_cpu>("rows", Backend::cpu),
      RONDO_GPU_VARIANTS(EdgeFramesArgs, edge_frames_gpu, "portable")};
  return variants;
}

std::span<const Variant> edge_frames_grad_variants() {
  static constexpr Variant variants[] = {
      variant<EdgeFramesGradArgs, edge_frames_grad_ref>("ref", Backend::ref),
      variant<EdgeFramesGradArgs, edge_frames_grad_cpu>("rows", Backend::cpu),
      RONDO_GPU_VARIANTS(EdgeFramesGradArgs, edge_frames_grad_gpu, "portable", Role::standard,
                         edge_frames_grad_accepts)};
  return variants;
}

}  // namespace rondo
