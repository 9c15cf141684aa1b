#include "engine/train/recognition/regression_errors.h"

#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace rondo {

void RegressionErrors::add(std::span<const float> target, std::span<const float> answer) {
  if (columns_.empty()) columns_.resize(target.size());
  RONDO_CHECK(target.size() == columns_.size() && answer.size() == columns_.size(), "an answer of ",
              answer.size(), " numbers to ", target.size());
  ++count_;
  for (size_t i = 0; i < columns_.size(); ++i) {
    Column& c = columns_[i];
    const double wanted = target[i], error = static_cast<double>(answer[i]) - wanted;
    c.absolute += std::abs(error);
    c.squares += error * error;
    const double before = wanted - c.mean;
    c.mean += before / static_cast<double>(count_);
    c.spread += before * (wanted - c.mean);
  }
}

RegressionErrors::Figures RegressionErrors::of(const Column& c) const {
  const auto n = static_cast<double>(count_);
  const double r2 =
      c.spread > 0 ? 1 - c.squares / c.spread : std::numeric_limits<double>::quiet_NaN();
  return {c.absolute / n, std::sqrt(c.squares / n), r2};
}

RegressionErrors::Figures RegressionErrors::all() const {
  Figures mean;
  for (const Column& c : columns_) {
    const Figures f = of(c);
    const auto n = static_cast<double>(columns_.size());
    mean.mae += f.mae / n;
    mean.rmse += f.rmse * f.rmse / n;
    mean.r2 += f.r2 / n;
  }
  mean.rmse = std::sqrt(mean.rmse);
  if (columns_.empty()) mean.mae = mean.rmse = mean.r2 = std::numeric_limits<double>::quiet_NaN();
  return mean;
}

std::vector<RegressionErrors::Figures> RegressionErrors::columns() const {
  std::vector<Figures> all;
  for (const Column& c : columns_) all.push_back(of(c));
  return all;
}

}  // namespace rondo
