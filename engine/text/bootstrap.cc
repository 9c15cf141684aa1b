#include "engine/text/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// Between the two nearest of sorted values, in proportion.
double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Of so many utterances: what `rate` says of each draw, or none.
template <class Rate>
std::optional<RateInterval> interval_of(size_t utterances, const Rate& rate) {
  if (utterances < 2) return std::nullopt;
  // Not a distribution of the standard library: those differ from one library to another.
  std::mt19937_64 random(1);
  std::vector<double> rates;
  std::vector<size_t> draw(utterances);
  for (int i = 0; i < bootstrap_samples; ++i) {
    for (size_t& u : draw) u = (random() >> 32) * utterances >> 32;
    if (const std::optional<double> of_draw = rate(draw)) rates.push_back(*of_draw);
  }
  if (rates.empty()) return std::nullopt;
  std::sort(rates.begin(), rates.end());
  return RateInterval{percentile(rates, 0.025), percentile(rates, 0.975)};
}

std::optional<double> rate_of(std::span<const EditCounts> all, std::span<const size_t> draw) {
  EditCounts sum;
  for (const size_t u : draw) sum += all[u];
  if (sum.reference == 0) return std::nullopt;
  return sum.rate();
}

}  // namespace

std::optional<RateInterval> bootstrap_interval(std::span<const EditCounts> utterances) {
  return interval_of(utterances.size(),
                     [&](const auto& draw) { return rate_of(utterances, draw); });
}

std::optional<RateInterval> bootstrap_difference(std::span<const EditCounts> first,
                                                 std::span<const EditCounts> second) {
  RONDO_CHECK(first.size() == second.size(), first.size(), " and ", second.size(), " utterances");
  return interval_of(first.size(), [&](const auto& draw) -> std::optional<double> {
    const auto one = rate_of(first, draw), other = rate_of(second, draw);
    if (!one || !other) return std::nullopt;
    return *other - *one;
  });
}

}  // namespace rondo
