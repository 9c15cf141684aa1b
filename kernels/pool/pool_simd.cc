// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/pool/pool_impl.h"

namespace rondo::RONDO_ISA {
namespace {

template <class T>
void mean_row(const PackedView& layout, const T* x, T* y, int64_t cols, int64_t n, int32_t length) {
  for (int64_t first = 0; first < cols; first += sum_columns) {
    const int64_t columns = cols - first < sum_columns ? cols - first : sum_columns;
    double totals[sum_columns];
    sum_tile(length, columns, totals, [&](int64_t t, int64_t k, auto part) {
      return part.get(x + (layout.row_offsets[t] + n) * cols + first + k);
    });
    float mean[sum_columns];
    for (int64_t k = 0; k < columns; ++k) mean[k] = static_cast<float>(totals[k] / length);
    for_vectors(columns,
                [&](int64_t k, auto part) { part.put(y + first + k, part.get(mean + k)); });
  }
}

template <class T>
void forward(const Context& context, const PoolArgs& a) {
  const PackedView& layout = a.layout;
  const int64_t cols = a.x.dim(1);
  const T* x = static_cast<const T*>(a.x.data);
  context.pool->for_range(layout.capacity.sequences, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int32_t length = pooled_length(layout, n);
      T* y = static_cast<T*>(a.y.data) + n * cols;
      if (length == 0) {
        for_vectors(cols, [&](int64_t i, auto part) { part.put(y + i, vf{}); });
      } else if (a.pooling == Pooling::last) {
        const T* last = x + (layout.row_offsets[length - 1] + n) * cols;
        for_vectors(cols, [&](int64_t i, auto part) { part.put(y + i, part.get(last + i)); });
      } else {
        mean_row(layout, x, y, cols, n, length);
      }
    }
  });
}

template <class T>
void backward(const Context& context, const PoolGradArgs& a) {
  const PackedView& layout = a.layout;
  const int64_t cols = a.dx.dim(1);
  context.pool->for_range(layout.extent->rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t t = layout.row_frame[r];
      const int64_t n = r - layout.row_offsets[t];
      const int32_t length = layout.lengths[n];
      const T* dy = static_cast<const T*>(a.dy.data) + n * cols;
      T* dx = static_cast<T*>(a.dx.data) + r * cols;
      if (a.pooling == Pooling::last && t != length - 1) {
        for_vectors(cols, [&](int64_t i, auto part) { part.put(dx + i, vf{}); });
        continue;
      }
      const vf share =
          broadcast(a.pooling == Pooling::mean ? 1.0f / static_cast<float>(length) : 1.0f);
      for_vectors(cols, [&](int64_t i, auto part) { part.put(dx + i, part.get(dy + i) * share); });
    }
  });
}

}  // namespace

void pool_cpu(const Context& context, const PoolArgs& a) {
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  forward<uint16_t>(context, a);
}

void pool_grad_cpu(const Context& context, const PoolGradArgs& a) {
  if (a.dx.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.dx.dtype == DType::bf16);
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
