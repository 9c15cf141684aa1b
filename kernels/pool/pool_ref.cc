#include "kernels/pool/pool_impl.h"

namespace rondo {

void pool_ref(const Context&, const PoolArgs& a) {
  const PackedView& layout = a.layout;
  const int64_t cols = a.x.dim(1);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t n = 0; n < layout.capacity.sequences; ++n) {
      const int32_t length = pooled_length(layout, n);
      const int32_t first = a.pooling == Pooling::last && length > 0 ? length - 1 : 0;
      for (int64_t c = 0; c < cols; ++c) {
        double sum = 0;
        for (int32_t t = first; t < length; ++t) {
          sum += static_cast<double>(a.x.as<T>()[(layout.row_offsets[t] + n) * cols + c]);
        }
        a.y.as<T>()[n * cols + c] = static_cast<T>(length > 0 ? sum / (length - first) : 0);
      }
    }
  });
}

void pool_grad_ref(const Context&, const PoolGradArgs& a) {
  const PackedView& layout = a.layout;
  const int64_t cols = a.dx.dim(1);
  visit_floating(a.dx.dtype, [&]<class T>(T) {
    for (int64_t r = 0; r < layout.extent->rows; ++r) {
      const int32_t t = layout.row_frame[r];
      const int64_t n = r - layout.row_offsets[t];
      const int32_t length = layout.lengths[n];
      const double share =
          a.pooling == Pooling::mean ? 1.0 / length : (t == length - 1 ? 1.0 : 0.0);
      for (int64_t c = 0; c < cols; ++c) {
        a.dx.as<T>()[r * cols + c] = static_cast<T>(
            share == 0 ? 0 : static_cast<double>(a.dy.as<T>()[n * cols + c]) * share);
      }
    }
  });
}

}  // namespace rondo
