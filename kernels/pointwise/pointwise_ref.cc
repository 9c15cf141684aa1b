#include <cmath>
#include <numbers>

#include "kernels/base/variants.h"
#include "kernels/pointwise/pointwise.h"

namespace rondo {
namespace {

double normal_below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double normal_density(double x) {
  return std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

double apply(PointwiseFunction f, double x, double z) {
  switch (f) {
    case PointwiseFunction::copy:
      return x;
    case PointwiseFunction::relu:
      return x > 0 || std::isnan(x) ? x : 0;
    case PointwiseFunction::tanh:
      return std::tanh(x);
    case PointwiseFunction::sigmoid:
      return 1 / (1 + std::exp(-x));
    case PointwiseFunction::gelu:
      return x * normal_below(x);
    case PointwiseFunction::add:
    case PointwiseFunction::bias:
      return x + z;
  }
  return 0;
}

// From x or y, as pointwise.h says.
double derivative(PointwiseFunction f, double saved) {
  const double x = saved, y = saved;
  switch (f) {
    case PointwiseFunction::relu:
      return y > 0 ? 1 : 0;
    case PointwiseFunction::tanh:
      return 1 - y * y;
    case PointwiseFunction::sigmoid:
      return y * (1 - y);
    case PointwiseFunction::gelu:
      return normal_below(x) + x * normal_density(x);
    default:
      return 1;
  }
}

}  // namespace

void pointwise_ref(const Context&, const PointwiseArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        double z = 0;
        if (a.function == PointwiseFunction::add) {
          z = static_cast<double>(a.z.as<T>()[r * cols + c]);
        } else if (a.function == PointwiseFunction::bias) {
          z = a.z.dtype == DType::f32 ? static_cast<double>(a.z.as<float>()[c])
                                      : static_cast<double>(a.z.as<T>()[c]);
        }
        const double x = static_cast<double>(a.x.as<T>()[r * cols + c]);
        a.y.as<T>()[r * cols + c] = static_cast<T>(apply(a.function, x, z));
      }
    }
  });
}

void pointwise_grad_ref(const Context&, const PointwiseGradArgs& a) {
  const int64_t n = covered_rows(a.dy, a.row_count) * a.dy.dim(1);
  visit_floating(a.dy.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < n; ++i) {
      const double saved = a.saved ? static_cast<double>(a.saved.as<T>()[i]) : 0;
      a.dx.as<T>()[i] =
          static_cast<T>(static_cast<double>(a.dy.as<T>()[i]) * derivative(a.function, saved));
    }
  });
}

}  // namespace rondo
