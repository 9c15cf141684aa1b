// Proves schedules, and the lists of steps that are made of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/schedule_steps.h"

namespace rondo {

struct ScheduleReport {
  // What is wrong, one sentence each; empty: the schedule is valid.
  std::vector<std::string> problems;
  // By rank: the largest number of micro-batches whose forward has run and whose backward (or
  // weight_backward) has not. Only for valid schedules.
  std::vector<int> peak_activations;
};

// Checks lists of all ranks, as all_steps() orders them:
//   * complete: every stage runs every micro-batch forward once and backward once, on its own
//     ranks, and every boundary between two ranks is crossed once in each direction and no other
//     is; every computation has each of its stage's exchanges once per direction, between the nodes
//     before and behind it;
//   * ordered: nothing is computed or sent before its inputs are there, and a computation is not
//     interrupted by another unless they are woven;
//   * posted: every state that arrives has been expected once, before its exchange;
//   * free of deadlock when a message between stages blocks both ends until they meet, and a state
//     blocks its sender until it is expected.
ScheduleReport check_steps(const ShardedSchedule& schedule,
                           std::span<const std::vector<Step>> lists);

// The same of any schedule, one rank per stage.
ScheduleReport check_schedule(const PipelineSchedule& schedule);

}  // namespace rondo
