// The labels of a sequence sorted by class, for the passes over rows. For the *.cu files of
// kernels/ctc alone.
#pragma once

#include "kernels/ctc/gpu/ctc_device.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int row_threads = 256;  // per block of the passes over rows

// The labels' positions sorted by class, equal ones in their order, and cut into pieces; by one
// block. Ranks are counted, so the time is L^2 / threads: microseconds where L is 1000.
struct GroupShared {
  int32_t starts[row_threads];
};
template <class T>
__device__ void group_labels(const Problem<T>& p, int64_t n, GroupShared& shared_state) {
  const int32_t count = p.label_count(n);
  const int32_t* label = p.labels_of(n);
  int32_t* order = p.work.order + n * p.work.max_labels;
  int32_t* begin = p.work.piece_begin + n * (p.work.max_labels + 1);
  int32_t* piece_class = p.work.piece_class + n * p.work.max_labels;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  // A start is marked by its complement until the pieces have their numbers.
  for (int32_t i = thread; i < count; i += row_threads) {
    int32_t less = 0, same = 0;
    for (int32_t j = 0; j < count; ++j) {
      less += label[j] < label[i];
      same += j < i && label[j] == label[i];
    }
    order[less + same] = same % ctc_piece == 0 ? ~i : i;
  }
  __syncthreads();
  const int32_t share = (count + row_threads - 1) / row_threads;
  const int32_t first = smaller(thread * share, count), last = smaller(first + share, count);
  int32_t starts = 0;
  for (int32_t j = first; j < last; ++j) starts += order[j] < 0;
  shared_state.starts[thread] = starts;
  __syncthreads();
  int32_t piece = 0;
  for (int32_t i = 0; i < thread; ++i) piece += shared_state.starts[i];
  for (int32_t j = first; j < last; ++j) {
    if (order[j] >= 0) continue;
    order[j] = ~order[j];
    begin[piece] = j;
    piece_class[piece++] = label[order[j]];
  }
  if (thread == row_threads - 1) {
    p.work.pieces[n] = piece;
    begin[piece] = count;
  }
}

}  // namespace
}  // namespace rondo::RONDO_GPU
