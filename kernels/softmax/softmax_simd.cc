// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/base/variants.h"
#include "kernels/softmax/softmax.h"

namespace rondo::RONDO_ISA {
namespace {

template <class T>
void log_softmax_row(const T* x, T* y, int64_t classes) {
  const float lowest = -__builtin_inff();
  vf highest = broadcast(lowest);
  for_vectors(classes,
              [&](int64_t i, auto part) { highest = max(highest, part.get(x + i, lowest)); });
  // A NaN may slip through the maximum, but not through the sum.
  const vf shift = broadcast(largest(highest));
  vf sums{};
  for_vectors(classes,
              [&](int64_t i, auto part) { sums += part.keep(exp(part.get(x + i) - shift)); });
  const vf log_sum = log(broadcast(sum(sums)));
  for_vectors(classes,
              [&](int64_t i, auto part) { part.put(y + i, part.get(x + i) - shift - log_sum); });
}

template <class T>
void log_softmax_grad_row(const T* y, const T* dy, T* dx, int64_t classes) {
  vf sums{};
  for_vectors(classes, [&](int64_t i, auto part) { sums += part.get(dy + i); });
  const vf total = broadcast(sum(sums));
  for_vectors(classes, [&](int64_t i, auto part) {
    part.put(dx + i, part.get(dy + i) - exp(part.get(y + i)) * total);
  });
}

template <class T>
void forward(const Context& context, const LogSoftmaxArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), classes = a.x.dim(1);
  const T* x = static_cast<const T*>(a.x.data);
  T* y = static_cast<T*>(a.y.data);
  if (classes == 0) return;
  context.pool->for_range(rows, row_grain(classes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      log_softmax_row(x + r * classes, y + r * classes, classes);
    }
  });
}

template <class T>
void backward(const Context& context, const LogSoftmaxGradArgs& a) {
  const int64_t rows = covered_rows(a.dy, a.row_count), classes = a.dy.dim(1);
  const T* y = static_cast<const T*>(a.y.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  T* dx = static_cast<T*>(a.dx.data);
  context.pool->for_range(rows, row_grain(classes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      log_softmax_grad_row(y + r * classes, dy + r * classes, dx + r * classes, classes);
    }
  });
}

}  // namespace

void log_softmax_cpu(const Context& context, const LogSoftmaxArgs& a) {
  if (a.x.dtype == DType::f32) return forward<float>(context, a);
  RONDO_CHECK(a.x.dtype == DType::bf16);
  forward<uint16_t>(context, a);
}

void log_softmax_grad_cpu(const Context& context, const LogSoftmaxGradArgs& a) {
  if (a.dy.dtype == DType::f32) return backward<float>(context, a);
  RONDO_CHECK(a.dy.dtype == DType::bf16);
  backward<uint16_t>(context, a);
}

}  // namespace rondo::RONDO_ISA
