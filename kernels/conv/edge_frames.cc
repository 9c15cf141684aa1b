#include "kernels/conv/edge_frames.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/base/cpu/parallel.h"
#include "kernels/conv/edge_frames_impl.h"

namespace rondo {
namespace {

[[maybe_unused]] bool edge_frames_grad_accepts(const Context&, const void* args) {
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

// f(r, array, row) for the rows of an edge that the array has: the batch, or what is before it.
template <class F>
void for_edge_rows(const PackedView& layout, const TensorView& rows, const TensorView& before,
                   const TensorView& edge, bool last, F f) {
  const int64_t sequences = layout.capacity.sequences, frames = edge ? edge.dim(0) : 0;
  for (int64_t j = 0; j < frames; ++j) {
    for (int64_t n = 0; n < layout.extent->sequences; ++n) {
      const int64_t length = layout.lengths[n], t = last ? length - frames + j : j;
      if (t >= length || !(t < 0 ? before : rows)) continue;
      if (t < 0) {
        f(j * sequences + n, before, (frames + t) * sequences + n);
      } else {
        f(j * sequences + n, rows, layout.row_offsets[t] + n);
      }
    }
  }
}

template <class T>
void edges_as(const EdgeFramesArgs& a) {
  const int64_t cols = a.x.dim(1);
  for (const TensorView* edge : {&a.tail, &a.head}) {
    if (*edge) std::fill_n(edge->as<T>(), edge->numel(), T(0.0f));
    for_edge_rows(a.layout, a.x, a.before, *edge, edge == &a.tail,
                  [&](int64_t r, const TensorView& from, int64_t row) {
                    std::copy_n(from.as<T>() + row * cols, cols, edge->as<T>() + r * cols);
                  });
  }
}

template <class T>
void edges_grad_as(const EdgeFramesGradArgs& a) {
  for (const TensorView* edge : {&a.dtail, &a.dhead}) {
    for_edge_rows(a.layout, a.dx, a.dbefore, *edge, edge == &a.dtail,
                  [&](int64_t r, const TensorView& to, int64_t row) {
                    const int64_t cols = edge->dim(2);
                    for (int64_t c = 0; c < cols; ++c) {
                      T& x = to.as<T>()[row * cols + c];
                      x = static_cast<T>(static_cast<double>(x) +
                                         static_cast<double>(edge->as<T>()[r * cols + c]));
                    }
                  });
  }
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
