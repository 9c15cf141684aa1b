#include "kernels/subsample/subsample.h"

namespace rondo {

void stack_frames_ref(const Context&, const StackFramesArgs& a) {
  const int64_t cols = a.x.dim(1), wide = cols * a.stack;
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int32_t n = 0; n < a.to.extent->sequences; ++n) {
      for (int32_t t = 0; t < a.to.lengths[n]; ++t) {
        T* y = a.y.as<T>() + (a.to.row_offsets[t] + n) * wide;
        for (int32_t j = 0; j < a.stack; ++j) {
          const int64_t s = int64_t{t} * a.stride + j;
          for (int64_t c = 0; c < cols; ++c) {
            y[j * cols + c] = s < a.from.lengths[n]
                                  ? a.x.as<T>()[(a.from.row_offsets[s] + n) * cols + c]
                                  : T(0.0f);
          }
        }
      }
    }
  });
}

void stack_frames_grad_ref(const Context&, const StackFramesGradArgs& a) {
  const int64_t cols = a.dx.dim(1), wide = cols * a.stack;
  visit_floating(a.dx.dtype, [&]<class T>(T) {
    for (int32_t n = 0; n < a.from.extent->sequences; ++n) {
      for (int32_t s = 0; s < a.from.lengths[n]; ++s) {
        for (int64_t c = 0; c < cols; ++c) {
          double sum = 0;
          for (int32_t t = 0; t < a.to.lengths[n]; ++t) {
            const int64_t j = s - int64_t{t} * a.stride;
            if (j < 0 || j >= a.stack) continue;
            const int64_t row = a.to.row_offsets[t] + n;
            sum += static_cast<double>(a.dy.as<T>()[row * wide + j * cols + c]);
          }
          a.dx.as<T>()[(a.from.row_offsets[s] + n) * cols + c] = static_cast<T>(sum);
        }
      }
    }
  });
}

}  // namespace rondo
