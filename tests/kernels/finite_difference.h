// Gradients against central differences in double.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "tests/catch.h"

namespace rondo::test {

inline std::vector<double> uniform_values(int64_t n, uint32_t seed, double low = -1,
                                          double high = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& v : values) v = uniform(generator);
  return values;
}

inline TensorView view_of(std::vector<double>& values, std::initializer_list<int64_t> dims) {
  return {values.data(), DType::f64, dims};
}

// The numbers as elements of the type that a backend computes in.
template <class T>
std::vector<T> as(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

template <class T>
TensorView view(std::vector<T>& v, int64_t cols) {
  REQUIRE(v.size() % static_cast<size_t>(cols) == 0);
  return {v.data(), DTypeOf<T>::value, {static_cast<int64_t>(v.size()) / cols, cols}};
}

template <class T>
TensorView line(std::vector<T>& v) {
  return {v.data(), DTypeOf<T>::value, {static_cast<int64_t>(v.size())}};
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

template <class Args>
void run_ref(const Args& args) {
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  run(Context{Backend::ref, &cpu_device(), &stream, &pool}, args);
}

// d loss() / d x[i] by central differences, for every i, beside analytic[i]. With steps of 1e-5 and
// values of order 1 the truncation is about 1e-10 and rounding about 1e-11.
inline void check_gradient(std::vector<double>& x, const std::vector<double>& analytic,
                           const std::function<double()>& loss) {
  REQUIRE(x.size() == analytic.size());
  constexpr double h = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + h;
    const double above = loss();
    x[i] = before - h;
    const double below = loss();
    x[i] = before;
    const double numeric = (above - below) / (2 * h);
    INFO("element " << i << ": analytic " << analytic[i] << ", numeric " << numeric);
    REQUIRE(std::abs(analytic[i] - numeric) <= 1e-8 * (1 + std::abs(numeric)));
  }
}

}  // namespace rondo::test
