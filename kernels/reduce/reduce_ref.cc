#include <cmath>

#include "kernels/base/variants.h"
#include "kernels/reduce/reduce.h"

namespace rondo {

void reduce_rows_ref(const Context&, const ReduceRowsArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Sum* y = a.y.as<Sum>();
    for (int64_t c = 0; c < cols; ++c) {
      double sum = a.accumulate ? static_cast<double>(y[c]) : 0;
      for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(a.x.as<T>()[r * cols + c]);
      y[c] = static_cast<Sum>(sum);
    }
  });
}

void sum_squares_ref(const Context&, const SumSquaresArgs& a) {
  double sum = 0;
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < a.x.numel(); ++i) {
      const double x = static_cast<double>(a.x.as<T>()[i]);
      sum += x * x;
    }
  });
  if (a.out.dtype == DType::f64) {
    double* out = a.out.as<double>();
    *out = (a.accumulate ? *out : 0) + sum;
  } else {
    float* out = a.out.as<float>();
    *out = static_cast<float>((a.accumulate ? static_cast<double>(*out) : 0) + sum);
  }
}

void count_nonfinite_ref(const Context&, const CountNonfiniteArgs& a) {
  int32_t count = a.accumulate ? *a.out.as<int32_t>() : 0;
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < a.x.numel(); ++i) {
      if (!std::isfinite(static_cast<double>(a.x.as<T>()[i]))) ++count;
    }
  });
  *a.out.as<int32_t>() = count;
}

}  // namespace rondo
