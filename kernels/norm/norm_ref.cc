#include <cmath>

#include "kernels/base/variants.h"
#include "kernels/norm/norm.h"

namespace rondo {
namespace {

template <class T>
using WeightOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// xhat and the two row means of the gradient.
template <class T>
void grad_row(const LayerNormGradArgs& a, int64_t r, int64_t cols) {
  using Weight = WeightOf<T>;
  const T* x = a.x.as<T>() + r * cols;
  const T* dy = a.dy.as<T>() + r * cols;
  const Weight* gamma = a.gamma.as<Weight>();
  const double mean = static_cast<double>(a.mean.as<Weight>()[r]);
  const double rstd = static_cast<double>(a.rstd.as<Weight>()[r]);
  double mean_g = 0, mean_gx = 0;
  for (int64_t c = 0; c < cols; ++c) {
    const double g = static_cast<double>(dy[c]) * static_cast<double>(gamma[c]);
    mean_g += g / static_cast<double>(cols);
    mean_gx += g * (static_cast<double>(x[c]) - mean) * rstd / static_cast<double>(cols);
  }
  for (int64_t c = 0; c < cols; ++c) {
    const double g = static_cast<double>(dy[c]) * static_cast<double>(gamma[c]);
    const double xhat = (static_cast<double>(x[c]) - mean) * rstd;
    a.dx.as<T>()[r * cols + c] = static_cast<T>(rstd * (g - mean_g - xhat * mean_gx));
  }
}

template <class T>
void weight_grads(const LayerNormGradArgs& a, int64_t rows, int64_t cols) {
  using Weight = WeightOf<T>;
  for (int64_t c = 0; c < cols; ++c) {
    double gamma = 0, beta = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double dy = static_cast<double>(a.dy.as<T>()[r * cols + c]);
      const double mean = static_cast<double>(a.mean.as<Weight>()[r]);
      const double rstd = static_cast<double>(a.rstd.as<Weight>()[r]);
      gamma += dy * (static_cast<double>(a.x.as<T>()[r * cols + c]) - mean) * rstd;
      beta += dy;
    }
    Weight& dgamma = a.dgamma.as<Weight>()[c];
    Weight& dbeta = a.dbeta.as<Weight>()[c];
    dgamma = static_cast<Weight>((a.accumulate ? static_cast<double>(dgamma) : 0) + gamma);
    dbeta = static_cast<Weight>((a.accumulate ? static_cast<double>(dbeta) : 0) + beta);
  }
}

}  // namespace

void layer_norm_ref(const Context&, const LayerNormArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    using Weight = WeightOf<T>;
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = a.x.as<T>() + r * cols;
      double mean = 0, variance = 0;
      for (int64_t c = 0; c < cols; ++c) mean += static_cast<double>(x[c]);
      mean /= static_cast<double>(cols);
      for (int64_t c = 0; c < cols; ++c) {
        const double centred = static_cast<double>(x[c]) - mean;
        variance += centred * centred;
      }
      variance /= static_cast<double>(cols);
      const double rstd = 1 / std::sqrt(variance + static_cast<double>(a.epsilon));
      if (a.mean) a.mean.as<Weight>()[r] = static_cast<Weight>(mean);
      if (a.rstd) a.rstd.as<Weight>()[r] = static_cast<Weight>(rstd);
      for (int64_t c = 0; c < cols; ++c) {
        const double xhat = (static_cast<double>(x[c]) - mean) * rstd;
        a.y.as<T>()[r * cols + c] =
            static_cast<T>(xhat * static_cast<double>(a.gamma.as<Weight>()[c]) +
                           static_cast<double>(a.beta.as<Weight>()[c]));
      }
    }
  });
}

void layer_norm_grad_ref(const Context&, const LayerNormGradArgs& a) {
  const int64_t rows = covered_rows(a.x, a.row_count), cols = a.x.dim(1);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    // Before dx, which may alias dy.
    if (a.dgamma) weight_grads<T>(a, rows, cols);
    for (int64_t r = 0; a.dx && r < rows; ++r) grad_row<T>(a, r, cols);
  });
}

}  // namespace rondo
