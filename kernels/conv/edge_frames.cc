#include "kernels/conv/edge_frames.h"

#include <cstring>
#include <initializer_list>

#include "kernels/base/cpu/parallel.h"
#include "kernels/conv/conv_impl.h"
#include "kernels/conv/edge_frames_rows.h"

namespace rondo {
namespace {

void check_edge(const PackedView& layout, const TensorView& rows,
                std::initializer_list<const TensorView*> edges) {
  for (const TensorView* edge : edges) {
    if (!*edge) continue;
    RONDO_CHECK(edge->rank == 3 && edge->dim(1) == layout.capacity.sequences &&
                    (!rows || (edge->dtype == rows.dtype && edge->dim(2) == rows.dim(1))),
                "edge_frames: rank ", edge->rank, " and type ", name_of(edge->dtype));
  }
}

template <class T>
void add_edges(const Context& context, const EdgeFramesGradArgs& a) {
  for_edges(a, [&](const EdgeRows& e) {
    const int64_t cols = e.cols;
    // A frame is in an edge once, so rows can be added in any order.
    context.pool->for_range(e.rows(), 8192 / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const ConvPlace place = edge_place(e, r);
        T* to = static_cast<T*>(const_cast<void*>(conv_array(e.source, place.part)));
        if (place.part == ConvPart::none || to == nullptr) continue;
        to += place.row * cols;
        const T* from = static_cast<const T*>(e.edge) + r * cols;
        for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<T>(double(to[c]) + double(from[c]));
      }
    });
  });
}

void copy_edges(const Context& context, const EdgeFramesArgs& a) {
  for_edges(a, [&](const EdgeRows& e) {
    const auto bytes = static_cast<size_t>(e.cols) * size_of(a.x.dtype);
    context.pool->for_range(
        e.rows(), static_cast<int64_t>((64 << 10) / (bytes + 1) + 1),
        [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const ConvPlace place = edge_place(e, r);
            const auto* from = static_cast<const char*>(conv_array(e.source, place.part));
            char* to = static_cast<char*>(e.edge) + static_cast<size_t>(r) * bytes;
            if (place.part == ConvPart::none) {
              std::memset(to, 0, bytes);
            } else {
              std::memcpy(to, from + static_cast<size_t>(place.row) * bytes, bytes);
            }
          }
        });
  });
}

// f(edge [N, cols], its frame, its sequence, frames of the edge, at its end) for the reference.
template <class T, class F>
void for_edge_frames(const PackedView& layout, const TensorView& edge, F f) {
  if (!edge) return;
  const int64_t sequences = layout.capacity.sequences;
  for (int64_t j = 0; j < edge.dim(0); ++j) {
    for (int64_t n = 0; n < sequences; ++n) {
      const int64_t length = n < layout.extent->sequences ? layout.lengths[n] : 0;
      f(edge.as<T>() + (j * sequences + n) * edge.dim(2), j, n, length);
    }
  }
}

template <class T>
void edges_as(const EdgeFramesArgs& a) {
  const int64_t cols = a.x.dim(1), sequences = a.layout.capacity.sequences;
  const auto copy = [&](T* to, const T* from) {
    for (int64_t c = 0; c < cols; ++c) to[c] = from ? from[c] : T(0.0f);
  };
  const auto frame = [&](int64_t t, int64_t n) {
    return a.x.as<T>() + (a.layout.row_offsets[t] + n) * cols;
  };
  for_edge_frames<T>(a.layout, a.tail, [&](T* to, int64_t j, int64_t n, int64_t length) {
    const int64_t t = length - a.tail.dim(0) + j;
    if (t >= 0) return copy(to, frame(t, n));
    copy(to, a.before ? a.before.as<T>() + ((length + j) * sequences + n) * cols : nullptr);
  });
  for_edge_frames<T>(a.layout, a.head, [&](T* to, int64_t j, int64_t n, int64_t length) {
    copy(to, j < length ? frame(j, n) : nullptr);
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

void check_edge_frames(const EdgeFramesArgs& a) {
  check_edge(a.layout, a.x, {&a.before, &a.tail, &a.head});
}
void check_edge_frames(const EdgeFramesGradArgs& a) {
  check_edge(a.layout, a.dx, {&a.dbefore, &a.dtail, &a.dhead});
}

void edge_frames_ref(const Context&, const EdgeFramesArgs& a) {
  check_edge_frames(a);
  visit_floating(a.x.dtype, [&]<class T>(T) { edges_as<T>(a); });
}

void edge_frames_grad_ref(const Context&, const EdgeFramesGradArgs& a) {
  check_edge_frames(a);
  visit_floating(edge_dtype(a), [&]<class T>(T) { edges_grad_as<T>(a); });
}

void edge_frames_cpu(const Context& context, const EdgeFramesArgs& a) {
  check_edge_frames(a);
  copy_edges(context, a);
}

void edge_frames_grad_cpu(const Context& context, const EdgeFramesGradArgs& a) {
  check_edge_frames(a);
  visit_floating(edge_dtype(a), [&]<class T>(T) { add_edges<T>(context, a); });
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
