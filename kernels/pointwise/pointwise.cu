// Element-wise maps, vector by vector. All but bias treat the matrix as a flat array; bias needs
// the column and has a team of threads per row.
#include "kernels/base/check_view.h"
#include "kernels/pointwise/functions.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

template <PointwiseFunction f, class T>
__global__ void forward(T* y, const T* x, int64_t rows, int64_t cols, const int32_t* row_count,
                        bool vectors) {
  for_elements<wide<T>>(live_rows(rows, row_count) * cols, vectors, [&](int64_t i, auto chunk) {
    auto v = chunk.get(x + i);
    for (int k = 0; k < chunk.n; ++k) v[k] = Function<f>::value(v[k]);
    chunk.put(y + i, v);
  });
}

template <class T>
__global__ void add(T* y, const T* x, const T* z, int64_t rows, int64_t cols,
                    const int32_t* row_count, bool vectors) {
  for_elements<wide<T>>(live_rows(rows, row_count) * cols, vectors, [&](int64_t i, auto chunk) {
    auto v = chunk.get(x + i);
    const auto w = chunk.get(z + i);
    for (int k = 0; k < chunk.n; ++k) v[k] += w[k];
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

// A constant, because device code may not call a host function even at compile time.
template <PointwiseFunction f>
constexpr bool reads_saved = saves_of(f) != PointwiseSaves::nothing;

template <PointwiseFunction f, class T>
__global__ void backward(T* dx, const T* saved, const T* dy, int64_t rows, int64_t cols,
                         const int32_t* row_count, bool vectors) {
  for_elements<wide<T>>(live_rows(rows, row_count) * cols, vectors, [&](int64_t i, auto chunk) {
    auto g = chunk.get(dy + i);
    Floats<chunk.n> v = {};
    if constexpr (reads_saved<f>) v = chunk.get(saved + i);
    for (int k = 0; k < chunk.n; ++k) g[k] = Function<f>::gradient(v[k], g[k]);
    chunk.put(dx + i, g);
  });
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
  T* y = a.y.as<T>();
  const auto shape = elements_launch("pointwise", a.x.numel(), wide<T>);
  if (a.function == PointwiseFunction::add) {
    const T* z = a.z.as<T>();
    return launch(context, shape, add<T>, y, x, z, a.x.dim(0), a.x.dim(1), a.row_count,
                  aligned<wide<T>>(x, y, z));
  }
  visit_function(a.function, [&]<PointwiseFunction f>(Function<f>) {
    launch(context, shape, forward<f, T>, y, x, a.x.dim(0), a.x.dim(1), a.row_count,
           aligned<wide<T>>(x, y));
  });
}

template <class T>
void backward_as(const Context& context, const PointwiseGradArgs& a) {
  const T* saved = a.saved.as<T>();
  const T* dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  visit_function(a.function, [&]<PointwiseFunction f>(Function<f>) {
    launch(context, elements_launch("pointwise_grad", a.dy.numel(), wide<T>), backward<f, T>, dx,
           saved, dy, a.dy.dim(0), a.dy.dim(1), a.row_count, aligned<wide<T>>(saved, dy, dx));
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
  if (saves_of(a.function) != PointwiseSaves::nothing) {
    check_like("pointwise_grad", "saved", a.saved, a.dy);
  }
  check_like("pointwise_grad", "dx", a.dx, a.dy);
  if (a.dy.numel() == 0) return;
  visit_narrow(a.dy.dtype, [&]<class T>(T) { backward_as<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
