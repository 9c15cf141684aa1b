#include <cmath>

#include "kernels/base/variants.h"
#include "kernels/softmax/softmax.h"

namespace rondo {

void log_softmax_ref(const Context&, const LogSoftmaxArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), classes = a.x.dim(1);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t r = 0; r < rows && classes > 0; ++r) {
      const T* x = a.x.as<T>() + r * classes;
      T* y = a.y.as<T>() + r * classes;
      double highest = static_cast<double>(x[0]);
      for (int64_t v = 1; v < classes; ++v) highest = std::fmax(highest, static_cast<double>(x[v]));
      double sum = 0;
      for (int64_t v = 0; v < classes; ++v) sum += std::exp(static_cast<double>(x[v]) - highest);
      for (int64_t v = 0; v < classes; ++v) {
        y[v] = static_cast<T>(static_cast<double>(x[v]) - highest - std::log(sum));
      }
    }
  });
}

void log_softmax_grad_ref(const Context&, const LogSoftmaxGradArgs& a) {
  const int64_t rows = covered_rows(a.dy, a.row_count), classes = a.dy.dim(1);
  visit_floating(a.dy.dtype, [&]<class T>(T) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* y = a.y.as<T>() + r * classes;
      const T* dy = a.dy.as<T>() + r * classes;
      T* dx = a.dx.as<T>() + r * classes;
      double sum = 0;
      for (int64_t v = 0; v < classes; ++v) sum += static_cast<double>(dy[v]);
      for (int64_t v = 0; v < classes; ++v) {
        dx[v] =
            static_cast<T>(static_cast<double>(dy[v]) - std::exp(static_cast<double>(y[v])) * sum);
      }
    }
  });
}

}  // namespace rondo
