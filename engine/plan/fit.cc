#include "engine/plan/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr size_t features = 5;
using Row = std::array<double, features>;

Row row_of(const NodeWork& w) { return {w.launches, w.steps, w.operations, w.bytes, w.step_bytes}; }

std::string key_of(const std::string& op, DType dtype) { return str(op, "/", name_of(dtype)); }

// The non-negative rates of least squares for work and its times, both divided by `scale`.
Row fit_scaled(std::span<const Sample> samples, const std::vector<double>& scale) {
  std::array<Row, features> gram{};
  Row target{};
  for (size_t k = 0; k < samples.size(); ++k) {
    Row row = row_of(samples[k].work);
    for (double& x : row) x /= scale[k];
    for (size_t i = 0; i < features; ++i) {
      target[i] += row[i] * samples[k].seconds / scale[k];
      for (size_t j = 0; j < features; ++j) gram[i][j] += row[i] * row[j];
    }
  }
  Row c{};
  for (int sweep = 0; sweep < 20000; ++sweep) {
    double moved = 0;  // in units of what it predicts
    for (size_t i = 0; i < features; ++i) {
      if (gram[i][i] <= 0) continue;
      double residual = target[i];
      for (size_t j = 0; j < features; ++j) residual -= gram[i][j] * c[j];
      const double next = std::max(0.0, c[i] + residual / gram[i][i]);
      moved = std::max(moved, std::abs(next - c[i]) * std::sqrt(gram[i][i]));
      c[i] = next;
    }
    if (moved < 1e-12) break;
  }
  return c;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Errors relative to the times themselves would make short times count most, and rates that are too
// small: of equal work that takes 1 s or 2 s they make 1.2 s. They are relative to what is
// predicted, and count by their size beyond a tenth (P. J. Huber, "Robust Estimation of a Location
// Parameter", Annals of Mathematical Statistics 35, 1964): a node beside which something else ran
// may have taken any time.
Rates fit_rates(std::span<const Sample> samples) {
  constexpr int rounds = 31;
  constexpr double small = 0.1;
  std::vector<double> scale;
  for (const Sample& s : samples) {
    RONDO_CHECK(s.seconds > 0, "a node that took ", s.seconds, " s");
    scale.push_back(s.seconds);
  }
  Rates rates;
  for (int round = 0; round < rounds; ++round) {
    const Row c = fit_scaled(samples, scale);
    rates = {c[0], c[1], c[2], c[3], c[4]};
    for (size_t i = 0; i < samples.size(); ++i) {
      const double time = samples[i].seconds;
      const double predicted = std::max(rates.seconds(samples[i].work), time / 20);
      const double error = std::abs(time - predicted) / predicted;
      scale[i] = predicted * std::sqrt(std::max(1.0, error / small));
    }
  }
  return rates;
}

std::map<std::string, Rates> fit_all_rates(std::span<const Sample> samples) {
  std::map<std::string, std::vector<Sample>> by_key;
  for (const Sample& s : samples) {
    by_key[key_of(s.op, s.dtype)].push_back(s);
    by_key[key_of(class_of(s.work), s.dtype)].push_back(s);
  }
  std::map<std::string, Rates> rates;
  for (const auto& [key, of_key] : by_key) rates[key] = fit_rates(of_key);
  return rates;
}

double step_error(const DeviceModel& device, std::span<const Sample> samples) {
  std::map<int, std::pair<double, double>> steps;  // predicted, measured
  for (const Sample& s : samples) {
    steps[s.shape].first += device.seconds(s.op, s.dtype, s.work);
    steps[s.shape].second += s.seconds;
  }
  std::vector<double> errors;
  for (const auto& [shape, step] : steps) errors.push_back(std::abs(step.first / step.second - 1));
  return median(std::move(errors));
}

}  // namespace rondo::plan
