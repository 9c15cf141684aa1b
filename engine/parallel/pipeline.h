// Pipeline parallelism: runs one rank's actions of a schedule (comm/schedule.h).
//
// The graph's nodes carry their stage; what one stage produces and a neighbour reads travels as one
// message per micro-batch and direction, live rows only, so every micro-batch has its own shape.
// Sends are given to the group and not waited for; recvs are posted ahead of their turn; a
// computation waits for its own inputs alone. So messages travel beside the computations, and the
// order of the schedule keeps them from deadlocking.
//
// Memory: a micro-batch needs a plan (activations) of its stage from its forward to its backward,
// or to its weight gradient where that is apart; there are as many plans as the schedule stores
// activations, and they are used again. All share the stage's parameters, into whose gradients they
// accumulate, in the order of the micro-batches.
//
// What crosses from a device to another goes by way of host memory. One thread at a time. Throws
// CommError when a rank is gone or late.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/process_group.h"
#include "comm/schedule.h"
#include "comm/schedule_timing.h"
#include "engine/graph/plan.h"

namespace rondo {

struct PipelineOptions {
  Wire wire = Wire::exact;  // bf16: f32 values are rounded on their way
  CommClock::duration timeout = std::chrono::minutes(5);  // of each message
  int look_ahead = 2;     // recvs that may be posted before their turn
  bool timeline = false;  // whether runs are recorded
};

struct PipelineHooks {
  // A micro-batch has been loaded into its plan of a stage.
  std::function<void(int stage, int micro_batch, Plan& plan)> loaded = {};
  // In place of running the nodes of a computation one after the other: done(node) follows each of
  // them.
  std::function<void(const Action& action, const std::function<void(size_t node)>& done)>
      run_nodes = {};
  // The last stage has computed its losses.
  std::function<void(int micro_batch, const Plan& plan)> after_loss = {};
  // Where the losses are there only after the (input) backward pass.
  bool loss_in_backward = false;
  // A node of the last micro-batch's backward has run, on a stage of this rank; CPU only.
  std::function<void(int stage, size_t node)> after_node = {};
  // The gradients of a stage of this rank are complete.
  std::function<void(int stage)> reduce = {};
};

// Whether an action runs the nodes of a phase.
bool runs(ActionKind kind, Phase phase);

// The forward half of a schedule of so many micro-batches, for evaluation.
PipelineSchedule forward_only(const PipelineSchedule& schedule, int micro_batches);

class PipelineRank {
 public:
  // `graph` is the whole graph, with its backward nodes if the schedule runs backwards. The group's
  // ranks are those of the schedule. Borrows the group, the parameters (of this rank's stages at
  // least) and what the context points to. Throws Error when a value crosses between stages that
  // are not neighbours, or a parameter is used by two stages.
  PipelineRank(const Graph& graph, const Context& context, ProcessGroup& group,
               PipelineSchedule schedule, Parameters& parameters, PipelineOptions options = {});

  // Memory for micro-batches up to `capacity`; run() asks for more where it needs it.
  void reserve(const BatchCapacity& capacity);

  // All actions. Every rank gets all micro-batches' layouts, labels and seeds; inputs that its
  // stages do not read may be missing. A micro-batch without sequences is passed over.
  void run(std::span<const BatchView> micro_batches, const PipelineHooks& hooks = {});

  const PipelineSchedule& schedule() const { return schedule_; }
  const std::vector<int>& stages() const { return own_; }
  // The graph that a stage's plans run: after_node's indices count its nodes.
  const Graph& stage_graph(int stage) const { return of(stage).graph; }
  // The plan that `micro_batch` had of `stage`, until another one takes it.
  const Plan& plan(int stage, int micro_batch) const;

  // Of all plans.
  size_t arena_bytes() const;
  size_t batch_bytes() const;
  // Of the last run, seconds from its start; empty unless options.timeline.
  const std::vector<TimedAction>& timeline() const { return timeline_; }
  // On the clock of the timeline.
  double seconds_since_start() const;

 private:
  struct Stage {
    Graph graph;
    std::vector<ValueId> from_lower, to_lower, from_upper, to_upper;
    std::vector<int> slot_of;  // by micro-batch
    int slots = 0;
    std::vector<std::unique_ptr<Plan>> plans;  // by slot
  };
  // A message on its way, or handed over within the rank. The work ends before the bytes.
  struct Parcel {
    std::vector<std::byte> bytes;
    Work work;
    size_t recorded = 0;  // its place in the timeline
  };
  using Key = std::pair<int, std::pair<int, int>>;  // up or down, stage that reads, micro-batch

  Stage& of(int stage) { return stages_.at(stage); }
  const Stage& of(int stage) const { return stages_.at(stage); }
  void cut(const Graph& graph, int stage);
  void assign_slots(int stage);
  Plan& plan_of(const Action& action);
  bool empty(int micro_batch) const;
  uint32_t tag(bool up, int reader, int micro_batch) const;

  void post_ahead(size_t action);
  void perform(const Action& action, const PipelineHooks& hooks);
  void compute(const Action& action, const PipelineHooks& hooks);
  void load(const Action& action);
  void run_nodes(const Action& action, const PipelineHooks& hooks);
  void receive_inputs(const Action& action);
  void hand_over(const Action& action);
  void send(const Action& action);
  std::vector<std::byte> packed(const Action& action, bool up);
  void drop_departed(bool wait);

  size_t record(const Action& action, CommClock::time_point start, CommClock::time_point end);
  void record_work(const Parcel& parcel);

  const Context context_;
  ProcessGroup& group_;
  const PipelineSchedule schedule_;
  Parameters& parameters_;
  const PipelineOptions options_;
  std::vector<int> own_;
  std::map<int, Stage> stages_;  // own
  BatchCapacity capacity_;
  bool planned_ = false;

  // Of a run.
  std::span<const BatchView> batches_;
  std::vector<BatchView::Input> inputs_;  // that the stage reads
  std::vector<size_t> recvs_;             // indices of this rank's recv actions
  size_t posted_ = 0;                     // of them
  std::map<Key, Parcel> arriving_;
  std::deque<Parcel> departing_;
  std::vector<std::vector<std::byte>> spare_;
  CommClock::time_point began_;
  std::vector<TimedAction> timeline_;
};

}  // namespace rondo
