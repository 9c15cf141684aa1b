// Predicts one update of one split for one shape of batches, and its memory. See
// engine/plan/split.h.
#pragma once

#include <vector>

#include "engine/plan/model_layers.h"
#include "engine/plan/split.h"
#include "engine/plan/step_tasks.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/op.h"

namespace rondo::plan {

struct StepTime {
  double seconds = 0, bubble = 0;
  double communication = 0, exposed = 0;  // seconds of gradients' sums, and weights' way back
  double computing = 0;                   // of a rank, mean
  double messages = 0;  // seconds in which a rank's messages of a pass are on their way, mean
  double input_delay = 0;
};

class StepModel {
 public:
  // Borrows both.
  StepModel(const Job& job, const Cluster& cluster);

  const ModelLayers& layers() const { return layers_; }
  // `batch` is the whole batch of an update.
  StepTime time(const Split& split, const BatchShape& batch) const;
  // What time() simulates, of one replica (the others do the same): the batches of an update, one
  // after the other, until the gradients are summed. Ranks are those of the pipeline, times shards,
  // and shard. Of the sums it shows what is left of them behind the passes. The update of the
  // weights, small sums and what time() adds for shared cores are not in it. Micro-batches are
  // numbered through. Stages are the schedule's; of shards alone layers, as SequenceShards notes
  // them.
  PipelineTimeline timeline(const Split& split, const BatchShape& batch) const;
  // What time() is at least: the slowest stage computes without waiting.
  double least_seconds(const Split& split, const BatchShape& batch) const;
  // Bytes of the rank that needs most.
  double memory(const Split& split, const BatchShape& batch) const;
  // Of the time loops beside which gradients are summed, those of the one that keeps most.
  int held_multiprocessors(const Split& split, const BatchShape& batch) const;

 private:
  // The part of the whole batch that one rank computes at a time.
  static BatchShape part_of(const BatchShape& batch, const Split& s);
  StepTime whole_models(const Split& s, const BatchShape& part) const;
  StepTime stages(const Split& s, const BatchShape& part) const;
  struct Reduction {
    double seconds = 0, exposed = 0;
    double copying = 0;  // of the rank, to and from the memory in which buckets travel
    double behind() const { return exposed + copying; }
  };
  // What a layer computes beside the gradients' sums: its time loop first.
  struct LastPass {
    double seconds = 0;
    HeldLoop loop = {};  // of these
  };
  Reduction reduce_beside(const std::vector<LastPass>& layers, int first_layer,
                          const Split& s) const;
  std::vector<Reduction> reduce_stages(const std::vector<LastPass>& layers,
                                       const std::vector<int>& first, const Split& s) const;
  // What is simulated of one batch (without stages and shards: of all).
  struct Passes {
    StepTasks tasks;
    Timeline timeline;                  // with what is left of the sums
    std::vector<Reduction> reductions;  // by stage
    double computed = 0;                // when all passes are over
    double busy = 0, messages = 0;      // seconds of a rank, mean, and of what it sends
  };
  Passes passes(const Split& s, const BatchShape& part) const;
  StepCosts step_costs(const Split& s, const BatchShape& part, const std::vector<int>& first,
                       std::vector<LastPass>& last_pass) const;
  static double left_of_sums(const std::vector<Reduction>& stages, double left, int pipeline,
                             StepTime& t);
  void add_update(const Split& s, int64_t weights, StepTime& t) const;
  double weight_bytes(const Split& s, int64_t weights) const;
  void share_cores(const Split& s, const BatchShape& batch, StepTime& t) const;
  // The first layer of every stage, and the number of layers.
  std::vector<int> cut(const Split& s, const BatchShape& part) const;
  std::vector<int64_t> weights_of_stages(const std::vector<int>& first) const;
  double message_bytes(int layer, const BatchShape& part) const;
  // The time to read or write so many arrays of the size of the weights.
  double pass_seconds(int64_t weights, int arrays) const;
  double update_seconds(const Split& s, int64_t weights) const;
  double small_sums(const Split& s) const;

  const Job& job_;
  const Cluster& cluster_;
  ModelLayers layers_;
  ThreadPool pool_{1};
  Context context_;  // whose kernels' workspaces count
};

}  // namespace rondo::plan
