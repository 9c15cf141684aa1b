#include "engine/plan/machine/fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr size_t features = 9;
using Row = std::array<double, features>;

Row row_of(const NodeWork& w) {
  return {w.calls, w.steps, w.exchanged,    w.flops,           w.recurrent_flops,
          w.bytes, w.cells, w.weight_bytes, w.far_weight_bytes};
}

// Ops with arithmetic or a recurrence of their own.
bool has_arithmetic(const std::string& key) {
  for (const char* op : {"lstm", "lstm_backward", "lstm_weight_grad", "linear", "linear_grad_input",
                         "linear_grad_weight", "ctc", "optimizer"}) {
    if (key.starts_with(str(op, "/"))) return true;
  }
  return false;
}

// What errors are told by: ops that only move data, which are many and cheap, are one class.
std::string class_of(const std::string& key) {
  return has_arithmetic(key) ? key : "other" + key.substr(key.find('/'));
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

namespace {

// The non-negative constants of least squares for rows and their times, both divided by `scale`.
Row fit_scaled(std::span<const Sample> samples, const std::vector<double>& scale) {
  // Columns are divided by their norm, so that the descent does not crawl.
  std::vector<Row> rows;
  Row norm{};
  for (size_t i = 0; i < samples.size(); ++i) {
    Row row = row_of(samples[i].work);
    for (size_t j = 0; j < features; ++j) {
      row[j] /= scale[i];
      norm[j] += row[j] * row[j];
    }
    rows.push_back(row);
  }
  for (double& n : norm) n = n > 0 ? std::sqrt(n) : 1;
  std::array<Row, features> gram{};
  Row target{};
  for (size_t k = 0; k < rows.size(); ++k) {
    const double time = samples[k].seconds / scale[k];
    for (size_t i = 0; i < features; ++i) {
      target[i] += rows[k][i] / norm[i] * time;
      for (size_t j = 0; j < features; ++j) {
        gram[i][j] += rows[k][i] / norm[i] * rows[k][j] / norm[j];
      }
    }
  }
  Row c{};
  for (int sweep = 0; sweep < 20000; ++sweep) {
    double moved = 0;
    for (size_t i = 0; i < features; ++i) {
      if (gram[i][i] <= 0) continue;
      double residual = target[i];
      for (size_t j = 0; j < features; ++j) residual -= gram[i][j] * c[j];
      const double next = std::max(0.0, c[i] + residual / gram[i][i]);
      moved = std::max(moved, std::abs(next - c[i]));
      c[i] = next;
    }
    if (moved < 1e-12) break;
  }
  for (size_t i = 0; i < features; ++i) c[i] /= norm[i];
  return c;
}

OpCost cost_of(const Row& c) { return {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]}; }

}  // namespace

// Errors relative to the times themselves would make short times count most, and constants that are
// too small: of equal work that takes 1 s or 2 s they make 1.2 s. They are relative to what is
// predicted, and count by their size beyond a tenth (P. J. Huber, "Robust Estimation of a Location
// Parameter", Annals of Mathematical Statistics 35, 1964): a node beside which something else ran
// may have taken any time.
OpCost fit_cost(std::span<const Sample> samples) {
  std::vector<double> scale;
  for (const Sample& s : samples) {
    RONDO_CHECK(s.seconds > 0, "a node that took ", s.seconds, " s");
    scale.push_back(s.seconds);
  }
  OpCost cost = cost_of(fit_scaled(samples, scale));
  constexpr int rounds = 30;
  constexpr double small = 0.1;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < samples.size(); ++i) {
      const double time = samples[i].seconds;
      const double predicted = std::max(seconds_of(cost, samples[i].work), time / 20);
      const double error = std::abs(time - predicted) / predicted;
      scale[i] = predicted * std::sqrt(std::max(1.0, error / small));
    }
    cost = cost_of(fit_scaled(samples, scale));
  }
  return cost;
}

std::map<std::string, OpCost> fit_costs(std::span<const Sample> samples) {
  std::map<std::string, std::vector<Sample>> by_key;
  for (const Sample& s : samples) {
    by_key[s.key].push_back(s);
    if (!has_arithmetic(s.key)) by_key[class_of(s.key)].push_back(s);
  }
  std::map<std::string, OpCost> costs;
  for (const auto& [key, of_key] : by_key) costs[key] = fit_cost(of_key);
  return costs;
}

std::map<std::string, FitError> fit_errors(const DeviceModel& device,
                                           std::span<const Sample> samples) {
  std::map<std::string, std::vector<double>> errors;
  struct Step {
    double predicted = 0, measured = 0;
  };
  std::map<int, Step> steps;
  for (const Sample& s : samples) {
    const auto slash = s.key.find('/');
    const DType dtype = s.key.substr(slash + 1) == "bf16" ? DType::bf16 : DType::f32;
    const double predicted = seconds_of(device.cost_of(s.key.substr(0, slash), dtype), s.work);
    errors[class_of(s.key)].push_back((predicted - s.seconds) / s.seconds);
    steps[s.shape].predicted += predicted;
    steps[s.shape].measured += s.seconds;
  }
  for (const auto& [shape, step] : steps) {
    errors["step"].push_back((step.predicted - step.measured) / step.measured);
  }
  std::map<std::string, FitError> result;
  for (const auto& [key, of_key] : errors) {
    std::vector<double> sizes;
    for (double e : of_key) sizes.push_back(std::abs(e));
    result[key] = {of_key.size(), median_of(sizes), *std::max_element(sizes.begin(), sizes.end()),
                   median_of(of_key)};
  }
  return result;
}

}  // namespace rondo::plan
