// When every action of a schedule would happen, given how long computations and messages take.
//
// The rules are those of the engine: a rank carries out its actions in order; a send leaves its
// message and goes on; a computation waits until its inputs have arrived. Messages between two
// ranks in one direction follow each other, each as long as it takes to send; a message then is
// under way for a latency, during which the next one may be sent.
//
// Pure functions; the schedule must be valid (check_schedule).
#pragma once

#include <functional>
#include <vector>

#include "comm/schedule.h"

namespace rondo {

struct TimedAction {
  Action action;
  double start = 0, end = 0;  // seconds; of a recv: from its turn to its arrival
};

// One run of a schedule, simulated or measured, by rank.
struct PipelineTimeline {
  std::vector<std::vector<TimedAction>> ranks;

  double duration() const;        // the latest end
  double busy(int rank) const;    // seconds of computation
  double bubble(int rank) const;  // share of duration() in which the rank does not compute
};

struct PipelineCosts {
  // The time of forward, backward, input_backward, weight_backward and reduce (which follows the
  // stage's gradients and delays nothing after it on this rank but the end).
  std::function<double(int rank, const Action&)> compute;
  // The time for which send_activation and send_gradient take the link.
  std::function<double(int rank, const Action&)> transfer;
  // The latency of the same, after their transfer; none: 0.
  std::function<double(int rank, const Action&)> latency = {};
};

PipelineTimeline pipeline_timing(const PipelineSchedule& schedule, const PipelineCosts& costs);

}  // namespace rondo
