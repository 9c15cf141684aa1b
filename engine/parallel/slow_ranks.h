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

  // Seconds by rank of one update, how many of these it waited for its data, and the time. A
  // sentence that names the slowest rank when over the last few updates it took twice as long as
  // the median of the others and at least 20 ms per update more, without each rank's longest
  // update, which one file or a new size of batch may have made; about the same rank at most once a
  // minute. Otherwise empty, and for the first updates, in which ranks begin to read and meet the
  // sizes of batches.
  std::string add(const std::vector<double>& seconds, const std::vector<double>& waits, double now);

  static constexpr size_t first = 8, window = 8;  // updates

 private:
  struct Update {
    std::vector<double> seconds, waits;  // by rank
  };
  size_t updates_ = 0;
  std::deque<Update> last_;
  std::vector<double> told_at_;
};

}  // namespace rondo
