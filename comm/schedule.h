// Pipeline schedules: who computes and sends what, in which order.
//
// A schedule is a pure function of the numbers of stages and micro-batches: a list of actions per
// stage. comm/schedule_steps.h makes of it what the engine runs, where a stage may be several
// ranks; here a stage is one rank, of the same number. Tests prove that the lists are
// complete, ordered and free of deadlock.
//
// 1F1B: D. Narayanan et al., "PipeDream", 2019, with a flush after every update. Zero bubble: P. Qi
// et al., "Zero bubble pipeline parallelism", 2023 (its ZB-H1, whose memory is that of 1F1B).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/schedule_kind.h"

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

// Any of the passes over a micro-batch.
bool computes(ActionKind kind);
bool is_send(ActionKind kind);
bool is_recv(ActionKind kind);
// Whether a message is an activation.
bool goes_up(ActionKind kind);
// Whether it computes what the stage before waits for.
bool gives_gradient(ActionKind kind);

struct Action {
  ActionKind kind;
  int stage;             // of the rank that acts
  int micro_batch = -1;  // -1: none
  int peer = -1;         // the rank at the other end of a send or recv, otherwise -1

  bool operator==(const Action&) const = default;
};
// "send_activation stage 0 micro-batch 3 to rank 1"
std::string describe(const Action& action);
// The stage at the other end of a send or recv.
int other_stage(const Action& message);
// The recv that takes what `send`, an action of `rank`, gives away.
Action recv_of(const Action& send, int rank);

struct PipelineSchedule {
  int micro_batches = 0;
  std::vector<std::vector<Action>> actions;  // by stage

  int stages() const { return static_cast<int>(actions.size()); }
};

// The schedule of a kind. Both kinds share: every stage's forwards, and its backwards, run in the
// order of the micro-batches, so gradients accumulate in the same order as without a pipeline;
// every stage is reduced once, after its last backward. Of p stages and m micro-batches stage r
// stores p-r micro-batches at most with 1F1B, where a backward runs as soon as it can, and p with
// zero bubble, where weight gradients are computed apart, r micro-batches later, while a stage
// would wait otherwise. The bubble, the idle time of a stage over its time of computing, is
// (p-1)/m and (p-1)/(3m) for equal stages whose backward takes twice the forward.
PipelineSchedule make_schedule(ScheduleKind kind, int stages, int micro_batches);

// The schedule in which every stage computes in the order of `computations` (by stage): with the
// messages between them and the reductions behind them. Error where a stage would wait for ever.
PipelineSchedule with_messages(std::vector<std::vector<Action>> computations, int micro_batches);

// The most micro-batches that `stage` stores at a time, as promised above.
int stored_activations(ScheduleKind kind, int stage, int stages, int micro_batches);

}  // namespace rondo
