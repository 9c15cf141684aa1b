// The rows of the edges of sequences, for host code and GPU kernels: of kernels/conv alone.
#pragma once

#include "kernels/conv/conv_windows.h"
#include "kernels/conv/edge_frames.h"

namespace rondo {

// One edge, [frames, N, cols]: the last frames of every sequence, or the first.
struct EdgeRows {
  ConvSource source;  // what it is a copy of, or is added to
  bool last = false;
  int64_t frames = 0, cols = 0;
  void* edge = nullptr;

  RONDO_HOST_DEVICE int64_t rows() const { return frames * source.layout.capacity.sequences; }
};

// Where row r of the edge is in its source.
RONDO_HOST_DEVICE inline ConvPlace edge_place(const EdgeRows& e, int64_t r) {
  const PackedView& layout = e.source.layout;
  const int64_t j = r / layout.capacity.sequences, n = r % layout.capacity.sequences;
  const int64_t length = n < layout.extent->sequences ? layout.lengths[n] : 0;
  const int64_t t = e.last ? length - e.frames + j : j;
  if (t >= 0) {
    return t < length ? ConvPlace{ConvPart::frames, layout.row_offsets[t] + n} : ConvPlace{};
  }
  if (e.source.before == nullptr) return {};
  return {ConvPart::before, (e.frames + t) * layout.capacity.sequences + n};
}

inline DType edge_dtype(const EdgeFramesGradArgs& a) {
  return a.dtail ? a.dtail.dtype : a.dhead.dtype;
}

// use(EdgeRows) for the last frames, then the first.
template <class F>
void for_edges(const PackedView& layout, const TensorView& rows, const TensorView& before,
               const TensorView& tail, const TensorView& head, F use) {
  for (const TensorView* edge : {&tail, &head}) {
    if (!*edge || edge->numel() == 0) continue;
    EdgeRows e;
    e.source.layout = layout;
    e.source.rows = rows.data;
    e.source.before = edge == &tail ? before.data : nullptr;
    e.last = edge == &tail;
    e.frames = edge->dim(0);
    e.cols = edge->dim(2);
    e.edge = edge->data;
    use(e);
  }
}
template <class F>
void for_edges(const EdgeFramesArgs& a, F use) {
  for_edges(a.layout, a.x, a.before, a.tail, a.head, use);
}
template <class F>
void for_edges(const EdgeFramesGradArgs& a, F use) {
  for_edges(a.layout, a.dx, a.dbefore, a.dtail, a.dhead, use);
}

}  // namespace rondo
