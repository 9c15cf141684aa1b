#include "engine/parallel/slow_ranks.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {

SlowRanks::SlowRanks(int ranks)
    : told_at_(static_cast<size_t>(ranks), -std::numeric_limits<double>::infinity()) {}

std::string SlowRanks::add(const std::vector<double>& seconds, const std::vector<double>& waits,
                           double now) {
  const size_t ranks = told_at_.size();
  if (ranks < 2 || seconds.size() != ranks || waits.size() != ranks) return {};
  if (updates_++ < first) return {};
  last_.push_back({seconds, waits});
  if (last_.size() > window) last_.pop_front();
  if (last_.size() < window) return {};
  std::vector<double> sums(ranks), waited(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    double longest = 0;
    for (const Update& u : last_) {
      sums[r] += u.seconds[r];
      waited[r] += u.waits[r];
      longest = std::max(longest, u.seconds[r]);
    }
    sums[r] = (sums[r] - longest) / static_cast<double>(window - 1);
    waited[r] /= static_cast<double>(window);
  }
  const auto slowest = std::max_element(sums.begin(), sums.end());
  const auto rank = static_cast<size_t>(slowest - sums.begin());
  const double own = *slowest;
  const bool waits_for_data = waited[rank] > own / 2;
  sums.erase(slowest);
  const auto middle = sums.begin() + static_cast<std::ptrdiff_t>(sums.size() / 2);
  std::nth_element(sums.begin(), middle, sums.end());
  if (!(own >= 2 * *middle && own >= *middle + 0.02) || now - told_at_[rank] < 60) return {};
  told_at_[rank] = now;
  return str("rank ", rank, " is slow: ", fixed_text(own, 2), " s per update, the others ",
             fixed_text(*middle, 2), " s", waits_for_data ? "; it waits for its data" : "");
}

}  // namespace rondo
