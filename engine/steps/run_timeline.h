// When the actions of a run of a pipeline took place, as this rank saw it. What is on the device is
// noted by its streams, so times are complete when those have passed. One thread at a time, beside
// the streams.
#pragma once

#include <algorithm>
#include <vector>

#include "comm/schedule_timing.h"
#include "comm/work.h"

namespace rondo {

class RunTimeline {
 public:
  explicit RunTimeline(bool records) : records_(records) {}

  bool records() const { return records_; }
  // A new run, of at most so many actions.
  void start(size_t actions) {
    began_ = CommClock::now();
    actions_.clear();
    actions_.reserve(records_ ? actions : 0);  // streams note times in them
  }
  // Its place among the actions; of no use where nothing is recorded.
  size_t add(const Action& action) {
    if (!records_) return 0;
    actions_.push_back({action, 0, 0});
    return actions_.size() - 1;
  }
  void set_start(size_t place, CommClock::time_point time) {
    if (records_) actions_[place].start = actions_[place].end = seconds_at(time);
  }
  void set_end(size_t place, CommClock::time_point time) {
    if (records_) actions_[place].end = std::max(actions_[place].start, seconds_at(time));
  }

  const std::vector<TimedAction>& actions() const { return actions_; }
  // Since start().
  double seconds_at(CommClock::time_point time) const {
    return std::max(0.0, std::chrono::duration<double>(time - began_).count());
  }

 private:
  const bool records_;
  CommClock::time_point began_;
  std::vector<TimedAction> actions_;
};

}  // namespace rondo
