// Runs what one rank does in the passes of an update: the steps of a schedule
// (comm/schedule_steps.h), for a stage of a pipeline, for a shard of sequences, and for both.
//
// The graph's nodes carry their stage; what one stage produces and a neighbour reads travels as one
// message per micro-batch and direction, live rows only, so every micro-batch has its own shape.
// Sends are given to the group and not waited for; recvs are posted ahead of their turn; a
// computation waits for its own inputs alone. So messages travel beside the computations, and the
// order of the schedule keeps them from deadlocking. What shards exchange inside a pass is
// SequenceShards' (engine/steps/sequence_shards.h).
//
// Memory: a micro-batch needs a bound graph (activations) of its stage from its forward to its
// backward, or to its weight gradient where that is apart; there are as many as the schedule stores
// activations, and they are used again. All share the stage's parameters, into whose gradients they
// accumulate, in the order of the micro-batches. Where the device records work each of them is one
// per bucket (engine/graph/bucket.h), in the memory of the largest.
//
// On devices all of that is queued: messages go from device to device over StageLinks, on streams
// of their own that events order with the computations, and the host waits at the end of a run.
// Where there are no links they go by way of host memory, and the host waits for every computation.
// Nodes between two messages are a stretch, and that is a recording, one launch from the third time
// on: a whole update's passes where there are no messages, and a micro-batch's forward and backward
// pass on the last stage. Not where somebody is told of its nodes, which is the last backward pass
// of a batch whose gradients are summed over replicas meanwhile (but see StepHooks::recording), nor
// where weight gradients are made weight by weight. One thread at a time. Throws CommError when a
// rank is gone or late; then the device may still be computing garbage.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "comm/schedule_steps.h"
#include "comm/schedule_timing.h"
#include "engine/graph/bucket.h"
#include "engine/steps/sequence_shards.h"
#include "engine/steps/stage_traffic.h"

namespace rondo {

struct PipelineOptions {
  Wire wire = Wire::exact;  // bf16: f32 values are rounded on their way
  // The limit of each message; over links it runs from when the message was queued, which is before
  // what it waits for is done.
  CommClock::duration timeout = std::chrono::minutes(5);
  int look_ahead = 2;     // recvs that may be posted before their turn (StageTraffic)
  bool timeline = false;  // whether runs are recorded
};

// What a run calls. What it calls with nodes is one recording with them, if it enqueues the same
// every time (`recording`).
struct StepHooks {
  // In front of the first nodes of a run, and behind the last ones; where the runner has all of the
  // model and whole sequences.
  std::function<void()> before = {}, after = {};
  // With the nodes of a micro-batch, behind those that make the last stage's losses: its forward
  // pass, or where shards need beta for them its (input) backward pass.
  std::function<void(int micro_batch, const BoundGraph& bound)> with_loss = {};
  // When these have run, or been queued; never a part of a recording.
  std::function<void(int micro_batch, const BoundGraph& bound)> after_loss = {};
  // A node of the last micro-batch's backward has run, or been queued. Where micro-batches are
  // woven: one that makes weight gradients, for all of them.
  std::function<void(size_t node)> after_node = {};
  // What runs of this number enqueue is the same every time, after_node with it; without a number
  // nodes that somebody is told of are not recorded.
  std::optional<size_t> recording = {};
};

// How a runner's stage shares each sequence with the ranks beside them.
struct SharedSequences {
  // Borrowed; its chunk().graph is what the runner runs. Whoever calls run() starts and finishes
  // its messages. nullptr: sequences are whole.
  SequenceShards* shards = nullptr;
  bool woven = false;  // ShardedSchedule::woven
};

// The forward half of a schedule of so many micro-batches, for evaluation.
PipelineSchedule forward_only(const PipelineSchedule& schedule, int micro_batches);

class StepRunner {
 public:
  // `graph` is the whole graph, with its backward nodes if the schedule runs backwards. The group's
  // ranks are the schedule's stages; nullptr: there is one, and whoever calls run() waits for the
  // device. Borrows the group, the parameters (of this rank's stage at least), what
  // the context points to and the links, which are of the same ranks; nullptr: none. Throws Error
  // when a value crosses between stages that are not neighbours, or a parameter is used by two
  // stages.
  StepRunner(const Graph& graph, const Context& context, ProcessGroup* group,
             PipelineSchedule schedule, Parameters& parameters, PipelineOptions options = {},
             StageLinks* links = nullptr, SharedSequences shared = {});

  // Memory for micro-batches, or this shard's slices of them, up to `capacity`; run() asks for more
  // where it needs it.
  void reserve(const BatchCapacity& capacity);

  // All steps. Every rank gets all micro-batches' layouts, labels and seeds; inputs that its stage
  // does not read may be missing. A micro-batch without sequences is passed over, and so is what
  // the schedule has beyond those that are given.
  void run(std::span<const BatchView> micro_batches, const StepHooks& hooks = {});

  // The bound graph for a micro-batch of this extent, which is reserve()d, for who runs it by
  // himself.
  BoundGraph& bound_for(const BatchCapacity& extent) { return graphs_.at(0).bound_for(extent); }
  const PipelineSchedule& schedule() const { return schedule_.schedule; }
  int stage() const { return stage_; }
  // The graph that the stage runs: after_node's indices count its nodes.
  const Graph& stage_graph() const { return graph_; }
  // SequenceShards::add_losses() on the ranks of the last stage, when a micro-batch has its losses
  // and keeps its bound graph.
  void add_losses(int micro_batch, LossTotals& totals, std::vector<double>& losses);

  // The bytes of all bound graphs.
  size_t arena_bytes() const;
  size_t batch_bytes() const;
  // The bytes of messages, on the device.
  size_t message_bytes() const { return traffic_ ? traffic_->memory_bytes() : 0; }
  // The actions of the last run, in seconds from its start; empty unless options.timeline.
  const std::vector<TimedAction>& timeline() const { return timeline_.actions(); }
  // On the clock of the timeline.
  double seconds_since_start() const { return timeline_.seconds_at(CommClock::now()); }

 private:
  using NodeDone = std::function<void(size_t node)>;
  const std::vector<Action>& actions() const;
  bool reads_message(ActionKind kind) const;
  void list_exchanges();
  void cut(const Graph& graph);
  void assign_slots();
  BucketedGraphs& graphs_of(const Action& action);
  BoundGraph& bound_of(const Action& action) { return graphs_of(action).latest(); }
  SequenceShards::Pass& pass_of(const Action& action) { return passes_.at(&bound_of(action)); }
  bool empty(int micro_batch) const;
  uint32_t tag(bool up, int reader, int micro_batch) const;
  StageMessage message(const Action& action, bool up, int reader) const;
  StageTraffic::Most most_traffic() const;

  void take_slices(std::span<const BatchView> micro_batches);
  void run_steps(const StepHooks& hooks);
  void post_ahead(size_t step);
  void perform(const Step& step, const StepHooks& hooks);
  void act(const Action& action);
  size_t end_of_stretch(size_t place) const;
  void compute(std::span<const Step> stretch, const StepHooks& hooks);
  void begin(const Action& action);
  void end(std::span<const Step> stretch, const StepHooks& hooks);
  bool makes_losses(ActionKind kind) const;
  void load(const Action& action);
  void run_nodes(std::span<const Step> stretch, const StepHooks& hooks, const NodeDone& done);
  void run_range(const Step& step, const NodeDone& done);
  std::pair<size_t, size_t> nodes_of(const Step& step) const;
  void exchange(const Step& step, const NodeDone& done);
  void run_weights(const StepHooks& hooks);
  void receive_inputs(const Action& action);
  void note_time(size_t place, bool end);

  const Context context_;
  ProcessGroup* const group_;
  const int stage_;
  SequenceShards* const shards_;
  ShardedSchedule schedule_;
  Parameters& parameters_;
  const PipelineOptions options_;
  std::vector<Step> steps_;
  // The stage's.
  Graph graph_;
  std::vector<ValueId> from_lower_, to_lower_, from_upper_, to_upper_;
  std::vector<int> slot_of_;  // by micro-batch
  int slots_ = 0;
  std::vector<BucketedGraphs> graphs_;  // by slot
  std::vector<size_t> exchanges_;       // places in SequenceShards::exchanges()
  BatchCapacity capacity_;
  bool reserved_ = false;
  std::map<const BoundGraph*, SequenceShards::Pass> passes_;  // of shards

  // The state of a run.
  std::span<const BatchView> whole_;
  std::vector<BatchSlice> slices_;  // of shards, by micro-batch
  std::vector<BatchView> batches_;
  std::vector<BatchView::Input> inputs_;  // that the stage reads
  std::vector<size_t> recvs_;             // places of this rank's recvs in steps_
  size_t posted_ = 0;                     // of them
  // By micro-batch: the place in the timeline of what is computed for it, if that is so.
  std::vector<std::optional<size_t>> computing_;
  RunTimeline timeline_;
  bool waits_for_computations_ = true;
  std::unique_ptr<StageTraffic> traffic_;
};

}  // namespace rondo
