// How fast a model trains, and what memory it takes, for every way to spread it over devices:
// data x pipeline x sequence.
//
// Pipelines, sequence shards and both together are simulated over the action lists that the engine
// runs (comm/schedule_steps.h, engine/plan/step_tasks.h), gradient
// buckets as tasks on ranks and links (engine/plan/timeline.h); memory is what the engine's planner
// plans (engine/graph/planner.h), with weights, gradients, the buckets in which they travel, and
// the optimiser's state, whole or divided over the ranks that hold the same weights.
// Durations come from engine/plan/machine/cost.h, links from engine/plan/cluster_links.h.
//
// Batches are prepared on cores that no rank computes on; what does not fit there delays the ranks
// for the share of the time in which they compute. More ranks than cores take turns.
//
// On GPUs a sum needs multiprocessors, and the LSTM's persistent kernels keep theirs for a whole
// layer (LstmHold): a sum that finds too few free waits for the loop's end, and the next loop for
// the sum's.
//
// Not modelled: differences between utterances of a batch beyond the histogram, evaluation, links
// that other jobs share, the memory of libraries.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/schedule.h"
#include "comm/schedule_timing.h"
#include "engine/plan/machine/cost.h"
#include "engine/plan/machine/machine.h"
#include "engine/session.h"

namespace rondo::plan {

// Global batches of this shape are so large a share of all.
struct WeightedShape {
  BatchShape shape;
  double weight = 1;
};

struct Job {
  ModelFunction model;
  DType compute = DType::f32;
  OptimizerOptions optimizer = {};
  std::vector<WeightedShape> batches;
  DType wire = DType::f32;  // of activations between stages, where they are f32
  // A core takes so long to prepare a frame of a batch, and so many threads do so on each rank. It
  // counts where ranks share the cores of their machine (DeviceModel::cores).
  double input_seconds_per_frame = 0;
  int input_threads = 1;
};

struct Split {
  int data = 1, pipeline = 1, sequence = 1;
  // The micro-batches of each replica. Without stages and shards they are batches, one after the
  // other, whose gradients add up.
  int micro_batches = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  // where staged()
  // With stages or shards: batches whose gradients add up, each with so many micro-batches.
  int batches = 1;
  bool shard_optimizer = false;  // over the ranks with the same weights
  int nccl_blocks = 0;           // of a sum on GPUs at most; 0: as many as NCCL likes
  int devices() const { return data * pipeline * sequence; }
  // The ranks that hold the same weights.
  int owners() const { return data * sequence; }
  // Whether the engine runs a schedule: it also does so where shards divide the optimiser.
  bool staged() const { return pipeline > 1 || (sequence > 1 && shard_optimizer); }
};
// "data 2 x pipeline 4 x sequence 1, 1f1b, 16 micro-batches, optimizer divided"
std::string describe(const Split& split);

struct Prediction {
  Split split;
  double seconds = 0;  // of an update, mean over the batches
  double frames_per_second = 0;
  double memory_bytes = 0;  // of the device that needs most, for the largest batch
  bool fits = false;
  double bubble = 0;         // share of the time until the last gradient in which devices idle
  double computing = 0;      // seconds in which a rank computes, mean
  double input_delay = 0;    // seconds by which preparing batches on the same cores delays it
  double communication = 0;  // seconds of gradient reduction
  double hidden = 0;         // share of it that computation hides
};

class StepModel;

class Planner {
 public:
  // Copies what it is given. Throws Error for a model that cannot be trained.
  Planner(Job job, Cluster cluster);
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  int layers() const;  // how many parts a pipeline can cut the model into
  int64_t weights() const;

  // Why a split is impossible, as a sentence's end; empty when it is possible.
  std::string objection(const Split& split) const;
  Prediction predict(const Split& split) const;
  // The cap on NCCL's blocks that lets sums run beside the backward pass's time loops; 0: they do
  // without one, or none are left.
  int blocks_beside_loops(const Split& split) const;
  // The multiprocessors that these loops keep, of those that keep most; 0: none keeps any.
  int held_multiprocessors(const Split& split) const;
  // One update's passes on the ranks of one replica, until its gradients are summed
  // (StepModel::timeline), of the batches whose time is nearest to the mean that predict() tells.
  PipelineTimeline timeline(const Split& split) const;
  // Every split of the cluster's devices with up to 64 shards, with micro-batches, schedule and
  // NCCL's blocks chosen for speed among those that fit. What fits comes first, the fastest first.
  std::vector<Prediction> rank() const;

 private:
  double least_seconds(const Split& split) const;
  // The fastest that fits; none where all are impossible.
  std::optional<Prediction> best_of(const std::vector<Split>& splits) const;

  Job job_;
  Cluster cluster_;
  std::unique_ptr<StepModel> model_;
};

}  // namespace rondo::plan
