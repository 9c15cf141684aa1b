// How fast a model trains, and what memory it takes, for every way to spread it over devices:
// data x pipeline x sequence.
//
// The passes of an update are simulated over the lists of steps that the engine runs
// (engine/plan/simulation.h), with gradients summed in buckets beside them; memory is what the
// engine's planner plans (engine/graph/memory_layout.h), with weights, gradients, the buckets in
// which they travel, and the optimiser's state, whole or divided over the ranks that hold the same
// weights. Durations come from the rates of devices and links (engine/plan/machine.h,
// engine/plan/cluster_links.h).
//
// Batches are prepared on cores that no rank computes on; what does not fit there delays the ranks
// for the share of the time in which they compute. More ranks than cores take turns.
//
// Not modelled: differences between utterances of a batch beyond the histogram, evaluation, what
// kernels and sums take from each other on one device, links that other jobs share, the memory of
// libraries.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "comm/schedule.h"
#include "engine/plan/simulation.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/op.h"

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
  bool divide_optimizer = false;  // over the ranks with the same weights
  int devices() const { return data * pipeline * sequence; }
  // The ranks that hold the same weights.
  int owners() const { return data * sequence; }
  // Whether the engine runs a schedule of several stages.
  bool staged() const { return pipeline > 1; }
};
// "data 2 x pipeline 4 x sequence 1, 1f1b, 16 micro-batches, optimizer divided"
std::string describe(const Split& split);

struct Prediction {
  Split split;
  double seconds = 0;  // of an update, mean over the batches
  double frames_per_second = 0;
  double memory_bytes = 0;  // of the device that needs most, for the largest batch
  bool fits = false;
  double bubble = 0;       // share of the time until the last gradient in which devices idle
  double computing = 0;    // seconds in which a rank computes, mean
  double input_delay = 0;  // seconds by which preparing batches on the same cores delays it
  double communication = 0, exposed = 0;  // seconds of gradients' sums, and of those not hidden
  double hidden() const { return communication > 0 ? 1 - exposed / communication : 0; }
};

class Planner {
 public:
  // Copies what it is given. Throws Error for a model that cannot be trained.
  Planner(Job job, Cluster cluster);

  int layers() const {
    return model_.layers();
  }  // how many parts a pipeline can cut the model into
  int64_t weights() const { return model_.weights(); }

  // Why a split is impossible, as a sentence's end; empty when it is possible.
  std::string objection(const Split& split) const;
  Prediction predict(const Split& split) const { return predict(split, never); }
  // What predict() simulates of one replica (the others do the same), for the batches whose time is
  // nearest to the mean: those of an update, one after the other, until the gradients are summed.
  // Ranks are those of the pipeline, times shards, and shard. Of the sums it shows what is left of
  // them behind the passes. The update of the weights, small sums and what shared cores cost are
  // not in it. Micro-batches are numbered through. Stages are the schedule's; of shards alone
  // blocks, as SequenceShards notes them.
  PipelineTimeline timeline(const Split& split) const;
  // Every split of the cluster's devices with up to 64 shards, with micro-batches and
  // schedule chosen for speed among those that fit. What fits comes first, the fastest first.
  std::vector<Prediction> rank() const;

 private:
  // A batch as a split cuts it: the part that a rank computes at a time, and what its blocks cost.
  struct Cut {
    BatchShape part;
    std::vector<BlockCost> costs;
    std::vector<int> counts, first;  // layers of each stage; first blocks, and the number of blocks
    std::vector<int64_t> weights;    // by stage
  };
  // The gradients' sums of a stage, beside the last pass that makes them.
  struct Reduction {
    double seconds = 0, exposed = 0;
    double copying = 0;  // of the rank, to and from the memory in which buckets travel
  };
  // predict(); where that takes `limit` seconds at least, without the memory, and as what does not
  // fit.
  Prediction predict(const Split& s, double limit) const;
  // The times for batches of one shape, the whole ones of an update. `passes`: what was simulated
  // of the last of its batches.
  Prediction timed(const Split& s, const BatchShape& batch, const Cut& cut,
                   StepTimes* passes = nullptr) const;
  Cut cut(const Split& s, const BatchShape& batch) const;
  StepCosts step_costs(const Split& s, const Cut& cut) const;
  std::vector<Reduction> reductions(const Split& s, const Cut& cut) const;
  Reduction reduce_beside(const std::vector<double>& seconds, int first_block,
                          const Split& s) const;
  void add_update(const Split& s, int64_t weights, Prediction& p) const;
  void share_cores(const Split& s, const BatchShape& batch, double messages, Prediction& p) const;
  double weight_bytes(const Split& s, int64_t weights) const;
  double memory(const Split& s, const BatchShape& batch, const Cut& cut) const;
  // The fastest that fits; none where all are impossible, or take `limit` seconds at least.
  std::optional<Prediction> best_of(const std::vector<Split>& splits, double limit = never) const;

  static constexpr double never = std::numeric_limits<double>::infinity();
  const Job job_;
  const Cluster cluster_;
  const ModelLayers model_;
  ThreadPool pool_{1};
  Context context_;  // whose kernels' workspaces count
};

}  // namespace rondo::plan
