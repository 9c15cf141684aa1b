// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/base/variants.h"
#include "kernels/pointwise/functions.h"
#include "kernels/pointwise/pointwise.h"

namespace rondo::RONDO_ISA {
namespace {

template <class T, class Z>
void add_bias(const Context& context, const T* x, const Z* bias, T* y, int64_t rows, int64_t cols) {
  context.pool->for_range(rows, 4096 / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for_vectors(cols, [&](int64_t i, auto part) {
        part.put(y + r * cols + i, part.get(x + r * cols + i) + part.get(bias + i));
      });
    }
  });
}

template <class T>
void forward(const Context& context, const PointwiseArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1), n = rows * cols;
  const T* x = static_cast<const T*>(a.x.data);
  const T* z = static_cast<const T*>(a.z.data);
  T* y = static_cast<T*>(a.y.data);
  if (a.function == PointwiseFunction::bias) {
    if (a.z.dtype == a.x.dtype) return add_bias(context, x, z, y, rows, cols);
    return add_bias(context, x, static_cast<const float*>(a.z.data), y, rows, cols);
  }
  if (a.function == PointwiseFunction::add) {
    return for_vectors_threaded(*context.pool, n, [&](int64_t i, auto part) {
      part.put(y + i, part.get(x + i) + part.get(z + i));
    });
  }
  visit_function(a.function, [&]<PointwiseFunction f>(Function<f>) {
    for_vectors_threaded(*context.pool, n, [&](int64_t i, auto part) {
      part.put(y + i, Function<f>::value(part.get(x + i)));
    });
  });
}

template <class T>
void backward(const Context& context, const PointwiseGradArgs& a) {
  const int64_t n = covered_rows(a.dy, a.row_count) * a.dy.dim(1);
  const T* saved = static_cast<const T*>(a.saved.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  T* dx = static_cast<T*>(a.dx.data);
  visit_function(a.function, [&]<PointwiseFunction f>(Function<f>) {
    for_vectors_threaded(*context.pool, n, [&](int64_t i, auto part) {
      vf s = {};
      if constexpr (saves_of(f) != PointwiseSaves::nothing) s = part.get(saved + i);
      part.put(dx + i, Function<f>::gradient(s, part.get(dy + i)));
    });
  });
}

}  // namespace

void pointwise_cpu(const Context& context, const PointwiseArgs& a) {
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16, "pointwise on cpu takes f32 or bf16, got ",
              name_of(a.x.dtype));
  forward<uint16_t>(context, a);
}

void pointwise_grad_cpu(const Context& context, const PointwiseGradArgs& a) {
  if (a.dy.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.dy.dtype == DType::bf16, "pointwise_grad on cpu takes f32 or bf16, got ",
              name_of(a.dy.dtype));
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
