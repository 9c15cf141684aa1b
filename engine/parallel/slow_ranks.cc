#include "engine/parallel/slow_ranks.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>

namespace rondo {

SlowRanks::SlowRanks(int ranks)
    : told_at_(static_cast<size_t>(ranks), -std::numeric_limits<double>::infinity()) {}

std::string SlowRanks::add(const std::vector<double>& seconds, double now) {
  if (told_at_.size() < 2 || seconds.size() != told_at_.size()) return {};
  last_.push_back(seconds);
  if (last_.size() > window) last_.pop_front();
  if (last_.size() < window) return {};
  std::vector<double> sums(seconds.size());
  for (const auto& step : last_) {
    for (size_t r = 0; r < sums.size(); ++r) sums[r] += step[r] / static_cast<double>(window);
  }
  const auto slowest = std::max_element(sums.begin(), sums.end());
  const auto rank = static_cast<size_t>(slowest - sums.begin());
  const double own = *slowest;
  sums.erase(slowest);
  const auto middle = sums.begin() + static_cast<std::ptrdiff_t>(sums.size() / 2);
  std::nth_element(sums.begin(), middle, sums.end());
  if (!(own >= 2 * *middle && own >= *middle + 0.02) || now - told_at_[rank] < 60) return {};
  told_at_[rank] = now;
  char text[160];
  std::snprintf(text, sizeof text, "rank %zu is slow: %.2f s per update, the others %.2f s", rank,
                own, *middle);
  return text;
}

}  // namespace rondo
