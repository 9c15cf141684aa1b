// Frames to one vector per sequence. The last frame and both gradients are copies, a team of
// threads per row. The mean is a sum of columns: a block takes 32 columns of one sequence.
#include <algorithm>

#include "kernels/base/check_view.h"
#include "kernels/pool/pool_impl.h"
#include "kernels/simt/column_sums.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T, int lanes>
__global__ void last_frames(T* y, const T* x, PackedView layout, int64_t cols, bool vectors) {
  const Team<lanes> team;
  for (int64_t n = team.first(); n < layout.capacity.sequences; n += team.stride()) {
    const int32_t length = pooled_length(layout, n);
    const T* from = length > 0 ? x + (layout.row_offsets[length - 1] + n) * cols : nullptr;
    team.template for_columns<wide<T>>(cols, vectors, [&](int64_t i, auto chunk) {
      Floats<chunk.n> v = {};
      if (from) v = chunk.get(from + i);
      chunk.put(y + n * cols + i, v);
    });
  }
}

// Block (tile of columns, sequence).
template <class T>
__global__ void mean_frames(T* y, const T* x, PackedView layout, int64_t cols) {
  const int64_t c = int64_t{blockIdx.x} * 32 + threadIdx.x % 32;
  for (int64_t n = blockIdx.y; n < layout.capacity.sequences; n += gridDim.y) {
    const int32_t length = pooled_length(layout, n);
    double total[1] = {};
    sum_columns<1>(0, length, c < cols, total, [&](int64_t t) -> Floats<1> {
      return {{to_float(x[(layout.row_offsets[t] + n) * cols + c])}};
    });
    if (threadIdx.x < 32 && c < cols) {
      y[n * cols + c] = to<T>(length > 0 ? static_cast<float>(total[0] / length) : 0.0f);
    }
  }
}

template <class T, int lanes>
__global__ void spread(Pooling pooling, T* dx, const T* dy, PackedView layout, int64_t cols,
                       bool vectors) {
  const Team<lanes> team;
  const int64_t rows = layout.extent->rows;
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const int32_t t = layout.row_frame[r];
    const int64_t n = r - layout.row_offsets[t];
    const int32_t length = layout.lengths[n];
    const bool takes_part = pooling == Pooling::mean || t == length - 1;
    const float share = pooling == Pooling::mean ? 1.0f / static_cast<float>(length) : 1.0f;
    team.template for_columns<wide<T>>(cols, vectors, [&](int64_t i, auto chunk) {
      Floats<chunk.n> v = {};
      if (takes_part) v = chunk.get(dy + n * cols + i);
      for (int k = 0; k < chunk.n; ++k) v[k] *= share;
      chunk.put(dx + r * cols + i, v);
    });
  }
}

template <class T>
void forward(const Context& context, const PoolArgs& a) {
  const int64_t sequences = a.layout.capacity.sequences, cols = a.x.dim(1);
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  if (a.pooling == Pooling::mean) {
    launch(
        context,
        {.kernel = "mean_frames",
         .grid = {blocks_for(cols, 32), static_cast<unsigned>(std::min<int64_t>(sequences, 65535))},
         .block = {block_threads},
         .shared_bytes = sizeof(ColumnSums<1>)},
        mean_frames<T>, y, x, a.layout, cols);
    return;
  }
  const bool vectors = aligned_rows<wide<T>>(cols, x, y);
  with_team("last_frames", sequences, cols,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, last_frames<T, lanes>, y, x, a.layout, cols, vectors);
            });
}

template <class T>
void backward(const Context& context, const PoolGradArgs& a) {
  const int64_t cols = a.dx.dim(1);
  const T* dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  const bool vectors = aligned_rows<wide<T>>(cols, dy, dx);
  with_team("pool_grad", a.layout.capacity.rows, cols,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, spread<T, lanes>, a.pooling, dx, dy, a.layout, cols, vectors);
            });
}

}  // namespace

void pool_gpu(const Context& context, const PoolArgs& a) {
  const int64_t rows = a.layout.capacity.rows, sequences = a.layout.capacity.sequences;
  check_matrix("pool", "x", a.x, a.x.dtype, rows, a.x.dim(1));
  check_matrix("pool", "y", a.y, a.x.dtype, sequences, a.x.dim(1));
  if (a.y.numel() == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { forward<T>(context, a); });
}

void pool_grad_gpu(const Context& context, const PoolGradArgs& a) {
  const int64_t rows = a.layout.capacity.rows, sequences = a.layout.capacity.sequences;
  check_matrix("pool_grad", "dx", a.dx, a.dx.dtype, rows, a.dx.dim(1));
  check_matrix("pool_grad", "dy", a.dy, a.dx.dtype, sequences, a.dx.dim(1));
  if (a.dx.numel() == 0) return;
  visit_narrow(a.dx.dtype, [&]<class T>(T) { backward<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
