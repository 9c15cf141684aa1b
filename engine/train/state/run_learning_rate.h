// The learning rates of a run, over all its parts: settings may change when it goes on.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "engine/train/state/training_state.h"

namespace rondo {

// Borrows the configuration. One thread at a time.
class RunLearningRate {
 public:
  explicit RunLearningRate(const Config& config) : config_(config) {}

  // Before the first update of this part of the run, which has so many in an epoch.
  void begin(TrainingState& state, int64_t updates_per_epoch);
  // The same where a run goes on that had the settings `before`. Where the next update gets another
  // rate than it would have had with those: a sentence with the rate so far and the one to come,
  // and how to leave it alone. Otherwise empty.
  std::string go_on(const Config& before, TrainingState& state, int64_t updates_per_epoch);

  // Updates of the whole run, unless something ends it early.
  int64_t expected_steps() const { return expected_; }
  // Of the update that follows.
  double rate(const TrainingState& state) const;

 private:
  // Where linear and cosine end their fall, unless the configuration says.
  int64_t end(const TrainingState& state) const {
    return state.fall_end > 0 ? state.fall_end : expected_;
  }

  const Config& config_;
  int64_t expected_ = 0;
};

}  // namespace rondo
