#include "engine/text/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace rondo {
namespace {

// Between the two nearest of sorted values, in proportion.
double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

std::optional<RateInterval> bootstrap_interval(std::span<const EditCounts> utterances) {
  if (utterances.size() < 2) return std::nullopt;
  // Not a distribution of the standard library: those differ from one library to another.
  std::mt19937_64 random(1);
  std::vector<double> rates;
  for (int draw = 0; draw < bootstrap_samples; ++draw) {
    EditCounts sum;
    for (size_t i = 0; i < utterances.size(); ++i) {
      sum += utterances[(random() >> 32) * utterances.size() >> 32];
    }
    if (sum.reference > 0) rates.push_back(sum.rate());
  }
  if (rates.empty()) return std::nullopt;
  std::sort(rates.begin(), rates.end());
  return RateInterval{percentile(rates, 0.025), percentile(rates, 0.975)};
}

}  // namespace rondo
