// Finds ranks that keep the others waiting, from the time each needed for its share of an update.
#pragma once

#include <deque>
#include <string>
#include <vector>

namespace rondo {

// One thread at a time.
class SlowRanks {
 public:
  explicit SlowRanks(int ranks);

  // Seconds by rank of one update, and the time. A sentence that names the slowest rank when over
  // the last few updates it took twice as long as the median of the others and at least 20 ms per
  // update more; about the same rank at most once a minute. Otherwise empty.
  std::string add(const std::vector<double>& seconds, double now);

 private:
  static constexpr size_t window = 4;
  std::deque<std::vector<double>> last_;
  std::vector<double> told_at_;
};

}  // namespace rondo
