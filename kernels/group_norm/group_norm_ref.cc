#include <cmath>
#include <vector>

#include "kernels/group_norm/group_norm_impl.h"

namespace rondo {
namespace {

template <class T>
using WeightOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// f(place in x, channel) for every value of sequence n and group k.
template <class F>
void for_group(const GroupNormDims& d, const PackedView& layout, int64_t n, int64_t k, F f) {
  const int64_t size = d.channels / d.groups;
  for (int64_t t = 0; t < layout.lengths[n]; ++t) {
    for (int64_t h = 0; h < d.height; ++h) {
      for (int64_t c = k * size; c < (k + 1) * size; ++c)
        f(((layout.row_offsets[t] + n) * d.height + h) * d.channels + c, c);
    }
  }
}

double values_of(const GroupNormDims& d, const PackedView& layout, int64_t n) {
  return static_cast<double>(layout.lengths[n] * d.height * (d.channels / d.groups));
}

template <class T>
void forward(const GroupNormArgs& a, int64_t n, int64_t k) {
  using Weight = WeightOf<T>;
  const T* x = a.x.as<T>();
  const int64_t at = n * a.dims.groups + k;
  double mean = 0, variance = 0, rstd = 0;
  if (n < a.layout.extent->sequences) {
    const double count = values_of(a.dims, a.layout, n);
    for_group(a.dims, a.layout, n, k,
              [&](int64_t i, int64_t) { mean += static_cast<double>(x[i]); });
    mean /= count;
    for_group(a.dims, a.layout, n, k, [&](int64_t i, int64_t) {
      const double centred = static_cast<double>(x[i]) - mean;
      variance += centred * centred;
    });
    rstd = 1 / std::sqrt(variance / count + static_cast<double>(a.epsilon));
    for_group(a.dims, a.layout, n, k, [&](int64_t i, int64_t c) {
      const double xhat = (static_cast<double>(x[i]) - mean) * rstd;
      a.y.as<T>()[i] = static_cast<T>(xhat * static_cast<double>(a.gamma.as<Weight>()[c]) +
                                      static_cast<double>(a.beta.as<Weight>()[c]));
    });
  }
  if (a.mean) a.mean.as<Weight>()[at] = static_cast<Weight>(mean);
  if (a.rstd) a.rstd.as<Weight>()[at] = static_cast<Weight>(rstd);
}

// Adds to the sums of the weights' gradients, and writes dx.
template <class T>
void backward(const GroupNormGradArgs& a, int64_t n, int64_t k, std::vector<double>& dgamma,
              std::vector<double>& dbeta) {
  using Weight = WeightOf<T>;
  const int64_t at = n * a.dims.groups + k;
  const double mean = static_cast<double>(a.mean.as<Weight>()[at]);
  const double rstd = static_cast<double>(a.rstd.as<Weight>()[at]);
  const auto xhat = [&](int64_t i) { return (static_cast<double>(a.x.as<T>()[i]) - mean) * rstd; };
  const auto dy = [&](int64_t i) { return static_cast<double>(a.dy.as<T>()[i]); };
  const auto gamma = [&](int64_t c) { return static_cast<double>(a.gamma.as<Weight>()[c]); };
  double mean_g = 0, mean_gx = 0;
  for_group(a.dims, a.layout, n, k, [&](int64_t i, int64_t c) {
    mean_g += dy(i) * gamma(c);
    mean_gx += dy(i) * gamma(c) * xhat(i);
    dgamma[static_cast<size_t>(c)] += dy(i) * xhat(i);
    dbeta[static_cast<size_t>(c)] += dy(i);
  });
  mean_g /= values_of(a.dims, a.layout, n);
  mean_gx /= values_of(a.dims, a.layout, n);
  if (!a.dx) return;
  for_group(a.dims, a.layout, n, k, [&](int64_t i, int64_t c) {
    a.dx.as<T>()[i] = static_cast<T>(rstd * (dy(i) * gamma(c) - mean_g - xhat(i) * mean_gx));
  });
}

template <class Weight>
void put(const TensorView& to, const std::vector<double>& sums, bool accumulate) {
  if (!to) return;
  Weight* out = to.as<Weight>();
  for (size_t c = 0; c < sums.size(); ++c)
    out[c] = static_cast<Weight>((accumulate ? static_cast<double>(out[c]) : 0) + sums[c]);
}

}  // namespace

void group_norm_ref(const Context&, const GroupNormArgs& a) {
  check_group_norm(a);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    for (int64_t n = 0; n < a.layout.capacity.sequences; ++n) {
      for (int64_t k = 0; k < a.dims.groups; ++k) forward<T>(a, n, k);
    }
  });
}

void group_norm_grad_ref(const Context&, const GroupNormGradArgs& a) {
  check_group_norm(a);
  visit_floating(a.x.dtype, [&]<class T>(T) {
    std::vector<double> dgamma(static_cast<size_t>(a.dims.channels)), dbeta = dgamma;
    for (int64_t n = 0; n < a.layout.extent->sequences; ++n) {
      for (int64_t k = 0; k < a.dims.groups; ++k) backward<T>(a, n, k, dgamma, dbeta);
    }
    put<WeightOf<T>>(a.dgamma, dgamma, a.accumulate);
    put<WeightOf<T>>(a.dbeta, dbeta, a.accumulate);
  });
}

}  // namespace rondo
