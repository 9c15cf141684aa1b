#include "engine/data/features/cmvn.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// Below this a column is constant, and dividing would only magnify rounding.
constexpr double least_variance = 1e-10;

double inverse_deviation(double variance) {
  return variance > least_variance ? 1.0 / std::sqrt(variance) : 0.0;
}

}  // namespace

const char* name_of(CmvnMode mode) {
  switch (mode) {
    case CmvnMode::none:
      return "none";
    case CmvnMode::mean:
      return "mean";
    case CmvnMode::mean_variance:
      return "mean_variance";
    case CmvnMode::global:
      return "global";
    case CmvnMode::whole:
      return "whole";
  }
  return "?";
}

namespace {

void normalize_whole(Matrix& m) {
  const double n = static_cast<double>(m.data.size());
  double mean = 0, variance = 0;
  for (float v : m.data) mean += v;
  mean /= n;
  for (float v : m.data) variance += (v - mean) * (v - mean);
  const double scale = inverse_deviation(variance / n);
  for (float& v : m.data) v = static_cast<float>((v - mean) * scale);
}

}  // namespace

void normalize_utterance(Matrix& m, CmvnMode mode) {
  if (mode == CmvnMode::none || mode == CmvnMode::global || m.frames == 0) return;
  if (mode == CmvnMode::whole) return normalize_whole(m);
  const auto dim = static_cast<size_t>(m.dim);
  const double n = static_cast<double>(m.frames);
  // Two passes: the squares of large features would cancel in one.
  std::vector<double> mean(dim), variance(dim);
  for (int64_t t = 0; t < m.frames; ++t)
    for (size_t i = 0; i < dim; ++i) mean[i] += m.row(t)[i];
  for (double& v : mean) v /= n;
  if (mode == CmvnMode::mean_variance) {
    for (int64_t t = 0; t < m.frames; ++t)
      for (size_t i = 0; i < dim; ++i) {
        const double d = m.row(t)[i] - mean[i];
        variance[i] += d * d;
      }
  }
  std::vector<float> center(dim), scale(dim, 1.0f);
  for (size_t i = 0; i < dim; ++i) {
    center[i] = static_cast<float>(mean[i]);
    if (mode == CmvnMode::mean_variance)
      scale[i] = static_cast<float>(inverse_deviation(variance[i] / n));
  }
  for (int64_t t = 0; t < m.frames; ++t)
    for (size_t i = 0; i < dim; ++i) m.row(t)[i] = (m.row(t)[i] - center[i]) * scale[i];
}

void apply(const GlobalCmvn& cmvn, Matrix& m) {
  const auto dim = static_cast<size_t>(m.dim);
  RONDO_CHECK(cmvn.mean.size() == dim && cmvn.scale.size() == dim, "statistics of ",
              cmvn.mean.size(), " columns, features of ", dim);
  for (int64_t t = 0; t < m.frames; ++t)
    for (size_t i = 0; i < dim; ++i) m.row(t)[i] = (m.row(t)[i] - cmvn.mean[i]) * cmvn.scale[i];
}

void CmvnStats::add(const Matrix& m) {
  const auto dim = static_cast<size_t>(m.dim);
  if (sum_.empty()) {
    sum_.resize(dim);
    squares_.resize(dim);
  }
  RONDO_CHECK(sum_.size() == dim, "features of ", dim, " columns after ", sum_.size());
  for (int64_t t = 0; t < m.frames; ++t)
    for (size_t i = 0; i < dim; ++i) {
      const double v = m.row(t)[i];
      sum_[i] += v;
      squares_[i] += v * v;
    }
  frames_ += m.frames;
}

CmvnStats& CmvnStats::operator+=(const CmvnStats& other) {
  if (other.sum_.empty()) return *this;
  if (sum_.empty()) return *this = other;
  RONDO_CHECK(sum_.size() == other.sum_.size(), "statistics of ", other.sum_.size(),
              " columns added to ", sum_.size());
  for (size_t i = 0; i < sum_.size(); ++i) {
    sum_[i] += other.sum_[i];
    squares_[i] += other.squares_[i];
  }
  frames_ += other.frames_;
  return *this;
}

GlobalCmvn CmvnStats::finish() const {
  if (frames_ == 0) fail_input("features: no frames to take mean and variance of");
  GlobalCmvn out;
  const double n = static_cast<double>(frames_);
  for (size_t i = 0; i < sum_.size(); ++i) {
    const double mean = sum_[i] / n;
    const double variance = std::max(0.0, squares_[i] / n - mean * mean);
    out.mean.push_back(static_cast<float>(mean));
    out.scale.push_back(static_cast<float>(inverse_deviation(variance)));
  }
  return out;
}

}  // namespace rondo
