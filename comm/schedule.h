// Pipeline schedules: who computes and sends what, in which order.
//
// A schedule is a pure function of the numbers of stages and micro-batches. The engine runs the
// action lists, one per rank; a simulator can time the same lists. check_schedule() proves that a
// list is complete, ordered and free of deadlock.
//
// GPipe: Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline
// parallelism", 2019.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

enum class ActionKind : uint8_t {
  forward,
  backward,         // gradients of inputs and weights at once
  input_backward,   // the input's gradient alone, for schedules that fill bubbles
  weight_backward,  // the weights' gradient; after input_backward
  send_activation,  // the output of `stage` to the rank of stage + 1
  recv_activation,  // the input of `stage` from the rank of stage - 1
  send_gradient,    // the input's gradient of `stage` to the rank of stage - 1
  recv_gradient,    // the output's gradient of `stage` from the rank of stage + 1
  reduce,           // the weight gradients of `stage` among its replicas; no micro-batch
};
const char* name_of(ActionKind kind);

struct Action {
  ActionKind kind;
  int stage;             // of the rank that acts
  int micro_batch = -1;  // -1: none
  int peer = -1;         // the rank at the other end of a send or recv, otherwise -1

  bool operator==(const Action&) const = default;
};
// "send_activation stage 0 micro-batch 3 to rank 1"
std::string describe(const Action& action);

struct PipelineSchedule {
  int stages = 0;
  int micro_batches = 0;
  std::vector<int> rank_of_stage;            // a rank may own several stages
  std::vector<std::vector<Action>> actions;  // by rank

  int ranks() const { return static_cast<int>(actions.size()); }
};

// All forwards, then all backwards; stage s on rank s. Backwards run in the order of the forwards,
// so gradients accumulate in the same order as without a pipeline. Bubble (p-1)/(m+p-1) of the
// time; every rank stores the activations of all micro-batches.
PipelineSchedule gpipe_schedule(int stages, int micro_batches);

struct ScheduleReport {
  // What is wrong, one sentence each; empty: the schedule is valid.
  std::vector<std::string> problems;
  // By rank: the largest number of (stage, micro-batch) pairs whose forward has run and whose
  // backward (or weight_backward) has not. Only for valid schedules.
  std::vector<int> peak_activations;
};

// Checks, for any schedule:
//   * complete: every stage runs every micro-batch forward once and backward once, on its own rank,
//     and every boundary between two ranks is crossed once in each direction and no other is;
//   * ordered: nothing is computed or sent before its inputs are there;
//   * free of deadlock when a send blocks until the peer has arrived at the matching recv.
ScheduleReport check_schedule(const PipelineSchedule& schedule);

}  // namespace rondo
