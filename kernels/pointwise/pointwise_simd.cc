// Compiled once per instruction set; see kernels/base/simd.h.
#include "kernels/base/parallel.h"
#include "kernels/base/simd.h"

#include "kernels/pointwise/pointwise_impl.h"

namespace rondo::RONDO_ISA {
namespace {

vf apply(PointwiseFunction f, vf x, vf z) {
  switch (f) {
    case PointwiseFunction::copy: return x;
    case PointwiseFunction::relu: return select(x <= 0.0f, vf{}, x);
    case PointwiseFunction::tanh: return tanh(x);
    case PointwiseFunction::sigmoid: return sigmoid(x);
    case PointwiseFunction::add:
    case PointwiseFunction::bias: return x + z;
  }
  return x;
}

vf apply_grad(PointwiseFunction f, vf y, vf dy) {
  switch (f) {
    case PointwiseFunction::relu: return select(y > 0.0f, dy, vf{});
    case PointwiseFunction::tanh: return dy * (1.0f - y * y);
    case PointwiseFunction::sigmoid: return dy * (y * (1.0f - y));
    default: return dy;
  }
}

vf get(const float* p) { return load(p); }
vf get(const uint16_t* p) { return load_bf16(p); }
void put(float* p, vf v) { store(p, v); }
void put(uint16_t* p, vf v) { store_bf16(p, v); }

// One run of n elements; the tail goes through a padded copy.
template <class T, class F>
void map(const T* a, const T* b, T* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + W <= n; i += W) put(y + i, f(get(a + i), b ? get(b + i) : vf{}));
  if (i < n) {
    T pad_a[W] = {}, pad_b[W] = {};
    for (int64_t k = 0; i + k < n; ++k) {
      pad_a[k] = a[i + k];
      if (b) pad_b[k] = b[i + k];
    }
    put(pad_a, f(get(pad_a), get(pad_b)));
    for (int64_t k = 0; i + k < n; ++k) y[i + k] = pad_a[k];
  }
}

template <class T>
void bias_row(const T* x, const float* bias32, const T* bias, T* y, int64_t n) {
  if (bias) return map(x, bias, y, n, [](vf a, vf b) { return a + b; });
  int64_t i = 0;
  for (; i + W <= n; i += W) put(y + i, get(x + i) + load(bias32 + i));
  if (i < n) {
    T pad[W] = {};
    float pad_bias[W] = {};
    for (int64_t k = 0; i + k < n; ++k) {
      pad[k] = x[i + k];
      pad_bias[k] = bias32[i + k];
    }
    put(pad, get(pad) + load(pad_bias));
    for (int64_t k = 0; i + k < n; ++k) y[i + k] = pad[k];
  }
}

template <class T>
void forward(const Context& context, const PointwiseArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  const T* x = static_cast<const T*>(a.x.data);
  const T* z = static_cast<const T*>(a.z.data);
  T* y = static_cast<T*>(a.y.data);
  if (a.function == PointwiseFunction::bias) {
    const bool same = a.z.dtype == a.x.dtype;
    context.pool->for_range(rows, 4096 / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        bias_row<T>(x + r * cols, static_cast<const float*>(a.z.data), same ? z : nullptr,
                    y + r * cols, cols);
      }
    });
    return;
  }
  // Whole vectors per thread, so that the split never changes what is a tail.
  const int64_t n = rows * cols, chunks = (n + W - 1) / W;
  context.pool->for_range(chunks, 16384 / W, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * W, last = end * W < n ? end * W : n;
    map(x + first, z ? z + first : nullptr, y + first, last - first,
        [&](vf a_, vf b_) { return apply(a.function, a_, b_); });
  });
}

template <class T>
void backward(const Context& context, const PointwiseGradArgs& a) {
  const int64_t n = covered_rows(a.dy, a.row_count) * a.dy.dim(1), chunks = (n + W - 1) / W;
  const T* y = static_cast<const T*>(a.y.data);
  const T* dy = static_cast<const T*>(a.dy.data);
  T* dx = static_cast<T*>(a.dx.data);
  context.pool->for_range(chunks, 16384 / W, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * W, last = end * W < n ? end * W : n;
    map(y + first, dy + first, dx + first, last - first,
        [&](vf y_, vf dy_) { return apply_grad(a.function, y_, dy_); });
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
