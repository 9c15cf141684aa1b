// When the actions of a schedule happened, or would happen.
#pragma once

#include <vector>

#include "comm/schedule.h"

namespace rondo {

struct TimedAction {
  Action action;
  double start = 0, end = 0;  // seconds; of a recv: until its arrival
};

// One run of a schedule, simulated (engine/plan/simulation.h) or measured, by rank.
struct PipelineTimeline {
  std::vector<std::vector<TimedAction>> ranks;

  double duration() const;        // the latest end
  double busy(int rank) const;    // seconds of computation
  double bubble(int rank) const;  // share of duration() in which the rank does not compute
};

}  // namespace rondo
