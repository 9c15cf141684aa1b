// Log-softmax: a team of threads per row. A row is read three times, from device memory the first
// time and, since the same threads come back at once, from the first-level cache after that.
#include "kernels/base/check_view.h"
#include "kernels/simt/memory_bound.h"
#include "kernels/softmax/softmax.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T, int lanes>
__global__ void log_softmax(T* y, const T* x, int64_t capacity, int64_t classes,
                            const int32_t* count, bool vectors) {
  constexpr int N = wide<T>;
  const Team<lanes> team;
  const int64_t rows = live_rows(capacity, count);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const T* in = x + r * classes;
    T* out = y + r * classes;
    float highest = -INFINITY;
    team.template for_columns<N>(classes, vectors, [&](int64_t i, auto chunk) {
      const auto v = chunk.get(in + i);
      for (int k = 0; k < chunk.n; ++k) highest = fmaxf(highest, v[k]);
    });
    // A NaN may slip through the maximum, but not through the sum.
    highest = team.max(highest);
    float sum = 0;
    team.template for_columns<N>(classes, vectors, [&](int64_t i, auto chunk) {
      const auto v = chunk.get(in + i);
      for (int k = 0; k < chunk.n; ++k) sum += expf(v[k] - highest);
    });
    const float log_sum = logf(team.sum(sum));
    team.template for_columns<N>(classes, vectors, [&](int64_t i, auto chunk) {
      auto v = chunk.get(in + i);
      for (int k = 0; k < chunk.n; ++k) v[k] = v[k] - highest - log_sum;
      chunk.put(out + i, v);
    });
  }
}

template <class T, int lanes>
__global__ void log_softmax_grad(T* dx, const T* y, const T* dy, int64_t capacity, int64_t classes,
                                 const int32_t* count, bool vectors) {
  constexpr int N = wide<T>;
  const Team<lanes> team;
  const int64_t rows = live_rows(capacity, count);
  for (int64_t r = team.first(); r < rows; r += team.stride()) {
    const int64_t row = r * classes;
    float sum = 0;
    team.template for_columns<N>(classes, vectors, [&](int64_t i, auto chunk) {
      const auto g = chunk.get(dy + row + i);
      for (int k = 0; k < chunk.n; ++k) sum += g[k];
    });
    sum = team.sum(sum);
    team.template for_columns<N>(classes, vectors, [&](int64_t i, auto chunk) {
      auto g = chunk.get(dy + row + i);
      const auto v = chunk.get(y + row + i);
      for (int k = 0; k < chunk.n; ++k) g[k] -= expf(v[k]) * sum;
      chunk.put(dx + row + i, g);
    });
  }
}

template <class T>
void forward(const Context& context, const LogSoftmaxArgs& a) {
  const int64_t rows = a.x.dim(0), classes = a.x.dim(1);
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  const bool vectors = aligned_rows<wide<T>>(classes, x, y);
  with_team("log_softmax", rows, classes, [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
    launch(context, config, log_softmax<T, lanes>, y, x, rows, classes, a.row_count, vectors);
  });
}

template <class T>
void backward(const Context& context, const LogSoftmaxGradArgs& a) {
  const int64_t rows = a.dy.dim(0), classes = a.dy.dim(1);
  const T* y = a.y.as<T>();
  const T* dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  const bool vectors = aligned_rows<wide<T>>(classes, y, dy, dx);
  with_team("log_softmax_grad", rows, classes,
            [&]<int lanes>(Lanes<lanes>, const LaunchConfig& config) {
              launch(context, config, log_softmax_grad<T, lanes>, dx, y, dy, rows, classes,
                     a.row_count, vectors);
            });
}

}  // namespace

void log_softmax_gpu(const Context& context, const LogSoftmaxArgs& a) {
  check_like("log_softmax", "y", a.y, a.x);
  if (a.x.numel() == 0) return;
  visit_narrow(a.x.dtype, [&]<class T>(T) { forward<T>(context, a); });
}

void log_softmax_grad_gpu(const Context& context, const LogSoftmaxGradArgs& a) {
  check_like("log_softmax_grad", "y", a.y, a.dy);
  check_like("log_softmax_grad", "dx", a.dx, a.dy);
  if (a.dy.numel() == 0) return;
  visit_narrow(a.dy.dtype, [&]<class T>(T) { backward<T>(context, a); });
}

}  // namespace rondo::RONDO_GPU
