// Trains and evaluates a model that is spread over pipeline stages, whose ranks may share each
// sequence (engine/steps/sequence_shards.h), replicated over data-parallel groups (hybrid
// parallelism).
//
// A rank holds the weights, gradients, optimiser state and activations of its own stage alone, and
// of its shard of the frames. Gradients are summed over the replicas and shards of a stage, in
// buckets, beside the backward pass of the last micro-batch; counts and losses over all; the
// gradient's norm, for clipping and to find what is not finite, over all stages, parameter by
// parameter in the order of the graph, so that its bits do not depend on where the model is cut.
//
// Ranks are on CPUs or on devices, each on one of its own or several on one. Where the grid makes
// groups of devices, activations and gradients pass from device to device, all of it queued, and
// the host waits for the device at the end of a batch. Otherwise they go by way of host memory, and
// with replicas the gradients of weights after the backward passes instead of beside them.
//
// All ranks of the world make the same calls in the same order, but for what is said below. One
// thread at a time. InputError for a model or settings that do not
// fit the ranks, before anything is computed; CommError and PeerFailed as engine/reduce/ranks.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/parallel/placement.h"
#include "engine/parallel/rank_grid.h"
#include "engine/reduce/bucket_sums.h"
#include "engine/reduce/host_array.h"
#include "engine/reduce/ranks.h"
#include "engine/session.h"
#include "engine/steps/step_runner.h"

namespace rondo {

struct PipelineSettings {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int micro_batches = 4;         // per batch and replica
  std::string placement;         // layers per stage, "3,4"; empty: by measured cost
  size_t stage_memory = 0;       // bytes that a stage may take; 0: no limit
  int64_t bucket_bytes = 0;      // 0: by the speed of the link
  bool shard_optimizer = false;  // over the ranks with the same stage
  PipelineOptions options = {};
};

// Fills the values of one parameter.
using ReadEntry = std::function<void(const Parameters::Entry& entry, std::span<float> into)>;

// A rank's part of a checkpoint that the ranks of a pipeline write together. Its own parameters lie
// in `layout`, a flat array of flat_size elements; the slots of the optimiser's state are such
// arrays, or, with several parts, this part's blocks of them (PartLayout).
struct StagePart {
  int stage = 0, stages = 1;  // rank of the pipeline
  int part = 0, parts = 1;    // of the optimiser's state
  std::vector<Parameters::Entry> layout;
  int64_t flat_size = 0;
  std::vector<TensorToWrite> weights, slots;  // empty where another rank writes them
};

class PipelineTrainer {
 public:
  // `capacity`: of the largest micro-batch. `world`: all ranks. Borrows the grid and the
  // groups.
  PipelineTrainer(const ModelFunction& model, const SessionOptions& options,
                  const PipelineSettings& settings, const Ranks& world, RankGrid& grid,
                  const BatchCapacity& capacity);
  ~PipelineTrainer();

  // Forward and backward of one batch: this replica's micro-batches, as many as the schedule has,
  // some of them perhaps without sequences. `last`: of the update.
  void accumulate(std::span<const BatchView> micro_batches, bool last);
  // The losses of a micro-batch of the last accumulate(), on the last stage's rank; empty
  // elsewhere.
  const std::vector<float>& losses(size_t micro_batch) const { return losses_.at(micro_batch); }
  // Over all replicas, the same on all ranks.
  const StepResult& update();

  // Loss and prediction of one batch, on the ranks of one replica together; every one of them gets
  // the whole result. Replicas may have different batches, or none.
  const std::vector<float>& evaluate_and_predict(const BatchView& batch);
  const StepResult& last_result() const { return result_; }
  Shape prediction_shape() const;
  int64_t subsampling() const;
  int32_t output_frames(int32_t length) const;

  // Plans memory for micro-batches up to `capacity`.
  void reserve(const BatchCapacity& capacity);

  // Of this rank's stage. The other members set weights and state.
  Update& optimizer() { return *update_; }
  const Update& optimizer() const { return *update_; }

  // This rank's part.
  Parameters& parameters() { return *parameters_; }
  // The parameters of the whole model: the flat array that checkpoints are laid out by.
  const std::vector<Parameters::Entry>& entries() const { return entries_; }
  int64_t flat_size() const { return flat_size_; }
  // A flat array over the whole model, on rank 0 (empty elsewhere): "" the weights, otherwise a
  // slot of the optimiser's state. Its padding is zero.
  std::vector<float> gather(const std::string& slot);
  // Weights (""), at which the moving average then starts, or a slot of the optimiser's state from
  // what `read` fills for each of entries(), in their order, on rank 0; elsewhere it is not called.
  // It must not throw: nobody would hear.
  void set(const std::string& slot, const ReadEntry& read);
  // What this rank writes into a checkpoint of all ranks; valid until the next update.
  StagePart part() const;
  // On rank 0 `write` is called with the weights of the whole model, which come from their ranks
  // one at a time while they are written; what it throws, it throws there. Others return when it
  // has.
  using WriteTensors = std::function<void(std::span<const TensorToWrite>)>;
  void stream_weights(const WriteTensors& write);

  const Graph& graph() const { return training_.graph; }
  const PipelineSchedule& schedule() const { return pipeline_->schedule(); }
  // Where sequences are cut; nullptr: they are whole.
  const SequenceShards* shards() const { return shards_.get(); }
  // "lstm0.0 lstm0.1 | output", and the numbers of "2,1".
  std::string placement_text() const { return describe_placement(layers_, counts_); }
  std::string placement() const;
  // What this rank did in the last batch of the last update, with the reduction after it.
  std::vector<TimedAction> timeline() const;
  // This rank's memory and communication.
  Session::Memory memory() const;
  Sums::Times communication() const;
  const Context& context() const { return context_; }

 private:
  struct Model {
    Graph graph;
    ValueId loss = no_value, prediction = no_value;
  };
  // One stage whose ranks share each sequence: all micro-batches go through it at once.
  bool woven() const { return grid_.split().pipeline == 1 && grid_.split().sequence > 1; }
  PipelineSchedule schedule_of(int micro_batches) const;
  static Model build(const ModelFunction& function, DType compute, bool training);
  void make_context(const SessionOptions& options);
  void place(const PipelineSettings& settings, const BatchCapacity& capacity);
  void choose_counts(const PipelineSettings& settings, const BatchCapacity& capacity, int stages);
  void compare_graphs();
  void make_pipeline(const BatchCapacity& capacity);
  void connect_devices();
  void expect_losses(std::span<const BatchView> micro_batches);
  void note_losses(int micro_batch, const Plan& plan);
  void collect_losses();
  void make_sums();
  LossTotals reduce();
  // An action that queues sums of replicas: when it throws, the others hear of it, and nothing
  // stays queued.
  void or_abort(const std::function<void()>& action);
  void run_passes(std::span<const BatchView> micro_batches, StepHooks hooks);
  void apply_update();
  void make_update();
  void fetch(size_t entry, std::vector<float>& into);
  void serve_weights();

  const Ranks world_;
  RankGrid& grid_;
  SessionOptions options_;
  const PipelineSettings settings_;
  Device* device_ = nullptr;
  Stream stream_;
  std::unique_ptr<ThreadPool> pool_;
  Context context_;
  Model training_, evaluation_;
  std::vector<ModelLayer> layers_;
  std::vector<int> counts_;
  std::vector<Parameters::Entry> entries_;
  int64_t flat_size_ = 0;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<Update> update_;
  BatchCapacity capacity_;                  // of a whole micro-batch
  std::unique_ptr<SequenceShards> shards_;  // nullptr: sequences are whole
  std::unique_ptr<StageLinks> links_;       // nullptr: a single stage, or none between the devices
  std::unique_ptr<DeviceGroup>
      replica_devices_;  // of same_stages(); nullptr: a single replica, or likewise
  std::unique_ptr<StepRunner> pipeline_, evaluator_;
  std::unique_ptr<Sums> sums_;
  Buffer totals_;
  LossTotals shard_totals_;                     // beside totals_, of sequences that are shared
  double reduce_began_ = 0, reduce_ended_ = 0;  // on the timeline
  bool clear_ = true;                           // nothing has been accumulated for the next update
  StepResult result_;
  StagingBuffer losses_on_host_;            // where the device leaves them,
  std::vector<size_t> losses_at_;           // by micro-batch: from this byte to the next one
  std::vector<std::vector<float>> losses_;  // by micro-batch
  std::vector<float> prediction_, evaluated_;
};

}  // namespace rondo
