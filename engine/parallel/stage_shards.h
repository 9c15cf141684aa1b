// A rank's shard of the stages of a pipeline: every sequence is cut in time over the ranks of a
// stage, which hold the same layers.
//
// PipelineRank carries out the actions of the pipeline's schedule and its messages between stages;
// each forward and backward pass within them is carried out here, step by step as shard_steps()
// says (engine/parallel/shard_steps.h): states from and to the other shards of the stage, computed
// by SequenceShards.
//
// On any device. One thread at a time. Throws InputError for models that cannot be cut, CommError
// when a rank fails.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/parallel/pipeline.h"
#include "engine/parallel/sequence_shards.h"
#include "engine/parallel/shard_steps.h"

namespace rondo {

class StageShards {
 public:
  // `training`: a whole training graph whose nodes have the schedule's stages. `shards`: the ranks
  // of this stage, as many as sequences have shards. `rank`: which of the schedule's this is.
  // Borrows the group and what the context points to.
  StageShards(const Graph& training, ValueId loss, const Context& context, ProcessGroup& shards,
              const PipelineSchedule& schedule, int rank, int32_t max_label_length);

  const SequenceShards& shards() const { return shards_; }
  // Whose nodes the pipeline runs.
  const Graph& graph() const { return shards_.chunk().graph; }
  // What this rank carries out.
  const std::vector<ShardStep>& steps() const { return steps_; }
  // By stage; places in these lists are ShardStep::exchange.
  const std::vector<StageExchanges>& exchanges() const { return exchanges_; }

  // This shard's part of every micro-batch through `pipeline`, a rank of the same schedule that
  // runs graph(). The micro-batches are the same on all shards. Each message may take `timeout`.
  void run(PipelineRank& pipeline, std::span<const BatchView> micro_batches, PipelineHooks hooks,
           CommClock::duration timeout);
  // Adds the losses of the last run, on the ranks of the last stage: SequenceShards::add_losses().
  void add_losses(int micro_batch, LossTotals& totals, std::vector<double>& losses);

 private:
  using NodeDone = PipelineHooks::NodeDone;
  void list_exchanges(int stages);
  void compute(const Action& action, const NodeDone& done);
  void perform(const ShardStep& step, const NodeDone& done);
  void run_nodes(const ShardStep& step, const NodeDone& done);
  void exchange(const ShardStep& step, const NodeDone& done);
  bool empty(int micro_batch) const;
  // The number by which SequenceShards knows the step's exchange.
  size_t exchange_of(const ShardStep& step) const {
    return places_[static_cast<size_t>(step.action.stage)][static_cast<size_t>(step.exchange)];
  }

  SequenceShards shards_;
  const int last_stage_;
  std::vector<StageExchanges> exchanges_;
  std::vector<std::vector<size_t>> places_;  // of exchanges_ in shards_.exchanges()
  std::vector<ShardStep> steps_;

  // The state of a run.
  size_t next_ = 0;                                             // of steps_
  std::map<std::pair<int, int>, SequenceShards::Pass> passes_;  // by stage, micro-batch
  std::vector<BatchPart> parts_;                                // by micro-batch
};

}  // namespace rondo
