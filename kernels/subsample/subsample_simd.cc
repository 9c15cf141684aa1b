// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/subsample/subsample.h"

namespace rondo::RONDO_ISA {
namespace {

template <class T>
void forward(const Context& context, const StackFramesArgs& a) {
  const int64_t cols = a.x.dim(1), wide = cols * a.stack;
  const T* x = static_cast<const T*>(a.x.data);
  context.pool->for_range(a.to.extent->rows, row_grain(wide), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t t = a.to.row_frame[r];
      const int64_t n = r - a.to.row_offsets[t];
      T* y = static_cast<T*>(a.y.data) + r * wide;
      for (int32_t j = 0; j < a.stack; ++j, y += cols) {
        const int64_t s = int64_t{t} * a.stride + j;
        const auto bytes = static_cast<size_t>(cols) * sizeof(T);
        if (s < a.from.lengths[n]) {
          __builtin_memcpy(y, x + (a.from.row_offsets[s] + n) * cols, bytes);
        } else {
          __builtin_memset(y, 0, bytes);
        }
      }
    }
  });
}

template <class T>
void backward(const Context& context, const StackFramesGradArgs& a) {
  const int64_t cols = a.dx.dim(1), wide = cols * a.stack;
  const T* dy = static_cast<const T*>(a.dy.data);
  context.pool->for_range(a.from.extent->rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t s = a.from.row_frame[r];
      const int64_t n = r - a.from.row_offsets[s];
      // The frames t of y whose window [t * stride, t * stride + stack) holds s.
      const int32_t first = s < a.stack ? 0 : (s - a.stack) / a.stride + 1;
      const int32_t last = s / a.stride;
      T* dx = static_cast<T*>(a.dx.data) + r * cols;
      for_vectors(cols, [&](int64_t i, auto part) {
        vf sum{};
        for (int32_t t = first; t <= last; ++t) {
          const int64_t j = s - int64_t{t} * a.stride;
          sum += part.get(dy + (a.to.row_offsets[t] + n) * wide + j * cols + i);
        }
        part.put(dx + i, sum);
      });
    }
  });
}

}  // namespace

void stack_frames_cpu(const Context& context, const StackFramesArgs& a) {
  RONDO_CHECK(a.stack >= 1 && a.stride >= 1);
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  forward<uint16_t>(context, a);
}

void stack_frames_grad_cpu(const Context& context, const StackFramesGradArgs& a) {
  RONDO_CHECK(a.stack >= 1 && a.stride >= 1);
  if (a.dx.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.dx.dtype == DType::bf16);
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
