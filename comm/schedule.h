// Pipeline schedules: who computes and sends what, in which order.
//
// A schedule is a pure function of the numbers of stages and micro-batches: a list of actions per
// rank. comm/schedule_steps.h makes of it what the engine runs, where a stage may be several ranks.
// check_schedule() proves that the lists are complete, ordered and free of deadlock.
//
// GPipe: Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline
// parallelism", 2019. 1F1B: D. Narayanan et al., "PipeDream", 2019, with a flush after every
// update. Interleaved: D. Narayanan et al., "Efficient large-scale language model training on GPU
// clusters using Megatron-LM", 2021. Zero bubble: P. Qi et al., "Zero bubble pipeline
// parallelism", 2023 (its ZB-H1, whose memory is that of 1F1B).
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
  int stages = 0;
  int micro_batches = 0;
  std::vector<int> rank_of_stage;            // a rank may own several stages
  std::vector<std::vector<Action>> actions;  // by rank

  int ranks() const { return static_cast<int>(actions.size()); }
};

enum class ScheduleKind : uint8_t { gpipe, one_f_one_b, interleaved, zero_bubble };
const char* name_of(ScheduleKind kind);  // "gpipe", "1f1b", "interleaved", "zero_bubble"
// The kind named so. Throws InputError that lists the names.
ScheduleKind schedule_kind(const std::string& name);

// The four below share: stage s is on rank s % ranks; every stage's forwards, and its backwards,
// run in the order of the micro-batches, so gradients accumulate in the same order as without a
// pipeline; every stage is reduced once, after its last backward. Bubbles are a rank's idle time
// over its time of computing, for equal stages whose backward takes twice the forward.

// All forwards, then all backwards. Bubble (p-1)/m. Every rank stores all micro-batches.
PipelineSchedule gpipe_schedule(int ranks, int micro_batches);

// A backward as soon as there is one, so rank r stores p-r micro-batches at most. Bubble (p-1)/m.
PipelineSchedule one_f_one_b_schedule(int ranks, int micro_batches);

// 1F1B with `chunks` stages per rank, in turn. Bubble (p-1)/(m chunks); rank r stores
// 2(p-r-1) + (chunks-1)p + 1 stages at most, each 1/chunks of a rank's layers. `micro_batches` must
// be a multiple of `ranks`.
PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int chunks);

// 1F1B whose weight gradients are computed apart, rank r's r micro-batches later, where it would
// wait otherwise. Bubble (p-1)/(3m); every rank stores p micro-batches at most (until their weight
// gradients).
PipelineSchedule zero_bubble_schedule(int ranks, int micro_batches);

// The schedule of a kind; `chunks` is 1 unless it is interleaved.
PipelineSchedule make_schedule(ScheduleKind kind, int ranks, int micro_batches, int chunks = 1);

// Why there is no such schedule, or no use in it, as the end of a sentence: "the 1f1b schedule of 4
// ranks needs at least 4 micro-batches, not 2"; empty when there is.
std::string schedule_objection(ScheduleKind kind, int ranks, int micro_batches, int chunks);

// The most (stage, micro-batch) pairs that `rank` stores at a time, as promised above.
int stored_activations(ScheduleKind kind, int rank, int ranks, int micro_batches, int chunks);

struct ScheduleReport {
  // What is wrong, one sentence each; empty: the schedule is valid.
  std::vector<std::string> problems;
  // By rank: the largest number of (stage, micro-batch) pairs whose forward has run and whose
  // backward (or weight_backward) has not. Only for valid schedules.
  std::vector<int> peak_activations;
};

// Checks any schedule, one rank per rank: check_steps() of comm/schedule_steps.h.
ScheduleReport check_schedule(const PipelineSchedule& schedule);

}  // namespace rondo
