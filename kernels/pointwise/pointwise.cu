// Element-wise maps, vector by vector. All but bias treat the matrix as a flat array; bias needs
// the column and has a team of threads per row.
#include "kernels/base/check_view.h"
#include "kernels/pointwise/pointwise_impl.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

__device__ float apply(PointwiseFunction f, float x, float z) {
  switch (f) {
    case PointwiseFunction::copy:
      return x;
    case PointwiseFunction::relu:
      return x <= 0.0f ? 0.0f : x;  // NaN stays
    case PointwiseFunction::tanh:
      return tanhf(x);
    case PointwiseFunction::sigmoid:
      return 1.0f / (1.0f + expf(-x));
    case PointwiseFunction::add:
    case PointwiseFunction::bias:
      return x + z;
  }
  return x;
}

__device__ float apply_grad(PointwiseFunction f, float y, float dy) {
  switch (f) {
    case PointwiseFunction::relu:
      return y > 0.0f ? dy : 0.0f;
    case PointwiseFunction::tanh:
      return dy * (1.0f - y * y);
    case PointwiseFunction::sigmoid:
      return dy * (y * (1.0f - y));
    default:
      return dy;
  }
}

// z: of add, else nullptr.
template <PointwiseFunction f, class T>
__global__ void forward(T* y, const T* x, const T* z, int64_t rows, int64_t cols,
                        const int32_t* row_count, bool vectors) {
  for_elements<wide<T>>(live_rows(rows, row_count) * cols, vectors, [&](int64_t i, auto chunk) {
    auto v = chunk.get(x + i);
    Floats<chunk.n> w = {};
    if constexpr (f == PointwiseFunction::add) w = chunk.get(z + i);
    for (int k = 0; k < chunk.n; ++k) v[k] = apply(f, v[k], w[k]);
    chunk.put(y + i, v);
  });
}

template <class T, class Z, int lanes>
__global__ void add_bias(T* y, const T* x, const Z* bias, int64_t capacity, int64_t cols,
                         const int32_t* row_count, bool vectors) {
  const Team<lanes> team;
  const int64_t rows = live_rows(capacity, row_count);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    team.template for_columns<wide<T, Z>>(cols, vectors, [&](int64_t i, auto chunk) {
      auto v = chunk.get(x + r * cols + i);
      const auto b = chunk.get(bias + i);
      for (int k = 0; k < chunk.n; ++k) v[k] += b[k];
      chunk.put(y + r * cols + i, v);
    });
  }
}

// y may be absent for copy, which does not need it.
template <PointwiseFunction f, class T>
__global__ void backward(T* dx, const T* y, const T* dy, int64_t rows, int64_t cols,
                         const int32_t* row_count, bool vectors) {
  for_elements<wide<T>>(live_rows(rows, row_count) * cols, vectors, [&](int64_t i, auto chunk) {
    auto g = chunk.get(dy + i);
    Floats<chunk.n> v = {};
    if constexpr (f != PointwiseFunction::copy) v = chunk.get(y + i);
    for (int k = 0; k < chunk.n; ++k) g[k] = apply_grad(f, v[k], g[k]);
    chunk.put(dx + i, g);
  });
}

template <PointwiseFunction f>
struct Function {};

// visit(Function<f>{}) for the function the arguments name.
template <class F>
void visit_function(PointwiseFunction function, F visit) {
  using enum PointwiseFunction;
  switch (function) {
    case copy:
      return visit(Function<copy>{});
    case relu:
      return visit(Function<relu>{});
    case tanh:
      return visit(Function<tanh>{});
    case sigmoid:
      return visit(Function<sigmoid>{});
    case add:
      return visit(Function<add>{});
    case bias:
      return visit(Function<bias>{});
  }
}

template <class T, class Z>
void bias_as(const Context& context, const PointwiseArgs& a) {
  const int64_t rows = a.x.dim(0), cols = a.x.dim(1);
  const T* x = a.x.as<T>();
  const Z* bias = a.z.as<Z>();
  T* y = a.y.as<T>();
  const bool vectors = aligned_rows<wide<T, Z>>(cols, x, bias, y);
  with_team("add_bias", rows, cols, [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
    launch(context, config, add_bias<T, Z, lanes>, y, x, bias, rows, cols, a.row_count, vectors);
  });
}

template <class T>
void forward_as(const Context& context, const PointwiseArgs& a) {
  if (a.function == PointwiseFunction::bias) {
    return a.z.dtype == DType::f32 ? bias_as<T, float>(context, a) : bias_as<T, T>(context, a);
  }
  const T* x = a.x.as<T>();
  const T* z = a.function == PointwiseFunction::add ? a.z.as<T>() : nullptr;
  T* y = a.y.as<T>();
  visit_function(a.function, [&]<PointwiseFunction f>(Function<f>) {
    launch(context, elements_launch("pointwise", a.x.numel(), wide<T>), forward<f, T>, y, x, z,
           a.x.dim(0), a.x.dim(1), a.row_count, aligned<wide<T>>(x, y, z));
  });
}

template <class T>
void backward_as(const Context& context, const PointwiseGradArgs& a) {
  const T* y = a.y.as<T>();
  const T* dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  visit_function(a.function, [&]<PointwiseFunction f>(Function<f>) {
    launch(context, elements_launch("pointwise_grad", a.dy.numel(), wide<T>), backward<f, T>, dx, y,
           dy, a.dy.dim(0), a.dy.dim(1), a.row_count, aligned<wide<T>>(y, dy, dx));
  });
}

}  // namespace

void pointwise_gpu(const Context& context, const PointwiseArgs& a) {
  check_like("pointwise", "y", a.y, a.x);
  if (a.function == PointwiseFunction::add) check_like("pointwise", "z", a.z, a.x);
  if (a.function == PointwiseFunction::bias) check_elements("pointwise", "z", a.z, a.x.dim(1));
  if (a.x.numel() == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { forward_as<T>(context, a); });
}

void pointwise_grad_gpu(const Context& context, const PointwiseGradArgs& a) {
  if (a.y) check_like("pointwise_grad", "y", a.y, a.dy);
  check_like("pointwise_grad", "dx", a.dx, a.dy);
  if (a.dy.numel() == 0) return;
  visit_narrow(a.dy.dtype, [&]<class T>(T) { backward_as<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
