// What one rank of a grid (engine/rank_grid.h) holds of a model and does in an update: all of it,
// or a stage of its layers, with whole sequences or a shard of their frames.
//
// A rank holds the weights, gradients, optimiser state and activations of its own stage alone, and
// of its shard of the frames. The passes of an update are lists of steps, which a StepRunner
// carries out (engine/steps/step_runner.h). Gradients are summed over the ranks with the same stage
// (Sums), in buckets, beside the backward pass of the last micro-batch, and losses and counts with
// them. Update writes the weights. Where the model is in stages, the counts and the gradient's norm
// are summed over these, the norm parameter by parameter in the order of the graph, so that its
// bits do not depend on where the model is cut.
//
// A rank with the whole model on a device that records work enqueues an update without sums as one
// launch, and never waits: results are collect()ed later. Stages and shards wait for what others
// send, on devices at the end of each batch; there results are ready when enqueue() returns.
// Where the grid makes groups of devices, activations and gradients pass from device to device.
// Otherwise they go by way of host memory, and stages sum the gradients after the backward passes.
//
// All ranks of the world make the same calls in the same order, but for what is said below. One
// thread at a time. InputError for a model or settings that do not fit the ranks, before anything
// is computed; CommError and PeerFailed as engine/reduce/ranks.h. Memory as engine/session.h says.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/in_process/in_process.h"
#include "engine/cut/chunked_training.h"
#include "engine/graph/recording.h"
#include "engine/io/safetensors.h"
#include "engine/placement.h"
#include "engine/rank_grid.h"
#include "engine/reduce/bucket_sums.h"
#include "engine/reduce/tree_sums.h"
#include "engine/session.h"
#include "engine/steps/lockstep.h"
#include "engine/steps/step_runner.h"
#include "kernels/totals/totals.h"

namespace rondo {

struct SplitSettings {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int micro_batches = 1;          // per batch and replica; of whole models 1
  std::string placement;          // layers per stage, "3,4"; empty: by measured cost
  size_t stage_memory = 0;        // bytes that a stage may take; 0: no limit
  int64_t bucket_bytes = 0;       // 0: by the speed of the link
  bool divide_optimizer = false;  // over the ranks with the same stage
  // Above 0, for whole models: batches come in so many parts, and are summed along the tree over
  // these, whatever the number of ranks (engine/reduce/tree_sums.h).
  int batch_parts = 0;
  size_t votes = 0;  // numbers that travel with an update (enqueue_update())
  PipelineOptions options = {};
};

// Tensors for write_safetensors() that read their bytes from the device when they are written.
TensorToWrite tensor_to_write(std::string name, const TensorView& view, Device& device);
std::vector<TensorToWrite> weights_to_write(const Parameters& parameters);
// All of them from a file that has them and no other tensors (InputError).
void load_weights(const SafetensorsFile& file, Parameters& parameters);

// The sums and counts of `totals`; what else a result has stays as it is.
void set_totals(StepResult& result, const LossTotals& totals);
// What a batch with these losses adds to the totals.
LossTotals totals_of(const BatchView& batch, std::span<const float> losses);

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

// The parts `own` of every batch, cut into `parts` parts of equal cost, are this rank's.
struct DataShare {
  PartRange own{0, 1};
  int parts = 1;
  // Ranks on their own draw of so many consecutive batches the one of this index, whole.
  int stride = 1, index = 0;
};

// What ranks tell each other with an update.
struct Votes {
  bool failed = false;  // this rank cannot go on: no rank may take the update for done
  // Numbers of this rank, as many as settings.votes, which become their sums over the ranks.
  std::span<double> ballot = {};
};

class RankModel {
 public:
  // `world`: all ranks. `capacity`: of the largest micro-batch, which stages are placed by; of
  // whole models it may be empty. Borrows the grid and the groups.
  RankModel(const ModelFunction& model, const SessionOptions& options,
            const SplitSettings& settings, const Ranks& world, RankGrid& grid,
            const BatchCapacity& capacity = {});
  ~RankModel();
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // Whether this rank has all layers and whole sequences.
  bool whole() const { return grid_.split().whole(); }
  // The part of each batch that is this rank's.
  DataShare share() const;

  // Lays out memory for micro-batches up to `capacity`.
  void reserve(const BatchCapacity& capacity);
  // Gives back what evaluations and predictions have laid out.
  void trim();

  // Forward and backward pass of this rank's parts of a batch: its micro-batches, in stages as
  // many as the schedule has, some of them perhaps without sequences. `last`: of the update, which
  // no other batch comes in between, and with the learning rate of now. Batches are copied out of
  // host memory at once. Leaves one result for collect(), with the losses of all of them.
  void enqueue(std::span<const BatchView> parts, bool last);
  // The update. With sums over ranks it may wait for the gradients (Sums::queued()).
  // Throws UpdateWithdrawn on all ranks that share the update when one of them failed; ranks of
  // stages and shards cannot fail apart from the others.
  void enqueue_update(const Votes& votes = {});
  static constexpr size_t most_in_flight = 8;
  size_t in_flight() const { return in_flight_; }
  // So many results may stay in flight when an update begins: a step's, so that a device has work
  // while results are read, or none where they are there at once.
  size_t lag() const;
  // Waits for the oldest batch or update in flight. Of a batch: its losses (of stages on the ranks
  // of the last one) and, of a whole model, the sums since the last update; of an update: the sums,
  // the norm and `skipped`, the same on all ranks.
  const StepResult& collect();
  // The same, waited for: enqueue() or enqueue_update(), and collect(). Nothing else is in flight.
  const StepResult& accumulate(std::span<const BatchView> parts, bool last);
  const StepResult& update();

  // Loss and prediction of a batch, without dropout or gradients, on the ranks of one replica
  // together; each gets the whole result. Replicas may have different batches, or none. The losses
  // are in last_result(). predict() of a whole model needs neither labels nor targets.
  const StepResult& evaluate(const BatchView& batch) { return evaluate(batch, false); }
  const std::vector<float>& evaluate_and_predict(const BatchView& batch);
  const std::vector<float>& predict(const BatchView& batch);
  const StepResult& last_result() const { return result_; }
  // Those of `ranks` who share out the batches of an evaluation: each has a whole model, with
  // others or alone.
  const Ranks& sharers(const Ranks& ranks) const { return whole() ? ranks : replicas_; }
  // Whether any of the ranks that evaluate the same batches says so.
  bool any_stage(bool here) const;
  Shape prediction_shape() const;
  int64_t subsampling() const;
  int32_t output_frames(int32_t length) const;

  // Instead of sums that were made for the grid; nullptr: none. Borrowed.
  void set_sums(Sums* sums);

  // This rank's part, after what is in flight.
  Parameters& parameters();
  std::shared_ptr<Parameters> weights_to_share() const { return parameters_; }
  // Of this rank's part. The other members set weights and state.
  Update& optimizer();
  bool trains() const { return update_ != nullptr; }
  // Of the updates that are not enqueued yet.
  void set_learning_rate(double rate);
  // The parameters of the whole model: the flat array that checkpoints are laid out by.
  const std::vector<Parameters::Entry>& entries() const { return entries_; }
  int64_t weights() const;  // how many there are in all,
  int64_t frozen() const;   // and those that keep their values
  int64_t flat_size() const { return flat_size_; }
  // A flat array over the whole model, on rank 0 (empty elsewhere): "" the weights, otherwise a
  // slot of the optimiser's state. Its padding is zero.
  std::vector<float> gather(const std::string& slot);
  // All slots of the optimiser's state, on rank 0 at least; valid until the next update.
  std::vector<Update::Slot> gather_state();
  // Weights (""), at which the moving average then starts, or a slot of the optimiser's state from
  // what `read` fills for each of entries(), in their order, on rank 0; elsewhere it is not called.
  // It must not throw: nobody would hear.
  void set(const std::string& slot, const ReadEntry& read);
  // The weights of ranks with the whole model become rank 0's. (Stages make theirs from the seed
  // and the names of parameters.)
  void share_weights();
  // What this rank writes into a checkpoint of all ranks; valid until the next update.
  StagePart part() const;
  // On rank 0 `write` is called with the weights of the whole model, which come from their ranks
  // one at a time while they are written; what it throws, it throws there. Others return when it
  // has.
  using WriteTensors = std::function<void(std::span<const TensorToWrite>)>;
  void stream_weights(const WriteTensors& write);
  // Steps taken so far.
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

  const Graph& graph() const { return training_.graph; }
  // What is executed of it, whose nodes Sums is told of: the same values, made by fewer nodes where
  // a device computes several layers at once.
  const Graph& executed_graph() const { return runner_->stage_graph(); }
  ValueId loss() const { return training_.loss; }
  const Graph& evaluation_graph() const { return evaluation_.graph; }
  const SessionOptions& options() const { return options_; }
  const PipelineSchedule& schedule() const { return runner_->schedule(); }
  // Where sequences are cut; nullptr: they are whole.
  const SequenceShards* shards() const { return shards_.get(); }
  // "on cpu with 2 threads, on each of 2 ranks"
  std::string describe() const;
  // "lstm0.0 lstm0.1 | output", and the numbers of "2,1".
  std::string placement_text() const { return describe_placement(layers_, counts_); }
  std::string placement() const;
  // "all-reduce: 12 us, ..."; empty where nothing was measured.
  const std::string& link_text() const { return link_text_; }
  // What this rank did in the last batch of the last update, with the reduction after it.
  std::vector<TimedAction> timeline() const;
  // This rank's memory and communication.
  Session::Memory memory() const;
  Session::Memory predict_memory(const BatchCapacity& capacity) const;  // of a whole model
  Sums::Times communication() const;
  const Context& context() const { return context_; }

 private:
  struct Model {
    Graph graph;
    ValueId loss = no_value, prediction = no_value;
  };
  // A batch or an update that was enqueued, and what comes back from the device.
  struct InFlight {
    struct Returned {
      LossTotals totals;
      Update::Staging update;
    };
    Event done;
    bool is_update = false;
    std::vector<size_t> at;  // where in `losses` those of each micro-batch begin, and the end
    DType dtype = DType::f32;
    StagingBuffer fixed, losses;

    Returned& returned() const { return *reinterpret_cast<Returned*>(fixed.data()); }
  };
  int stages() const { return grid_.split().pipeline; }
  bool last_stage() const { return grid_.stage_rank() == stages() - 1; }
  // Whether this rank speaks for those with the same stage.
  bool first_of_stage() const {
    return whole() ? world_.first() : grid_.replica() == 0 && grid_.shard() == 0;
  }
  // One stage whose ranks share each sequence: all micro-batches go through it at once.
  bool woven() const { return stages() == 1 && grid_.split().sequence > 1; }

  // Building (rank_model.cc).
  PipelineSchedule schedule_of(int micro_batches) const;
  static Model build(const ModelFunction& function, DType compute, bool training);
  void make_context();
  void add_backward();
  void place(const BatchCapacity& capacity);
  void choose_counts(const BatchCapacity& capacity);
  void compare_graphs();
  void make_parameters();
  void take_shared_weights();
  void make_runner(const BatchCapacity& capacity);
  void connect_devices();
  void make_sums();
  int64_t bucket_bytes();
  StepRunner& evaluator(std::unique_ptr<StepRunner>& runner, const Graph& graph);
  void run_evaluation(StepRunner& runner, const BatchView& batch,
                      const std::function<void(const BoundGraph&)>& read);
  const StepResult& evaluate(const BatchView& batch, bool predict);
  void spread_evaluation(const BatchView& batch, bool predicted);

  // Memory (rank_model_memory.cc). With what would fit in the message, where it does not.
  void reserve(StepRunner& runner, const BatchCapacity& capacity);
  void make_room(InFlight& item, size_t bytes);

  // Training (rank_model_steps.cc). The place of the ring that is `ahead` of the next free one.
  InFlight& place_in_ring(size_t ahead);
  InFlight& begin_item(bool is_update);
  void end_item(InFlight& item);
  void clear_gradients();
  void clear();  // before the first batch of an update
  void run_stages(InFlight& item, std::span<const BatchView> parts, bool last);
  void run_shards(InFlight& item, std::span<const BatchView> parts, StepHooks hooks);
  void run_whole(InFlight& item, std::span<const BatchView> parts, bool last);
  void run_batch(InFlight& item, size_t part, const BatchView& batch, bool updates);
  void run_lockstep(InFlight& item, size_t part, const BatchView& batch);
  std::vector<double> run_chunks(const BatchView& batch);
  void expect_losses(InFlight& item, std::span<const BatchView> parts);
  void fetch_losses(InFlight& item, size_t micro_batch, const BoundGraph& bound);
  // Totals and losses that were added up on the host.
  void put_losses(InFlight& item, const std::vector<std::vector<double>>& losses);
  void add_to_totals(const BoundGraph& bound, bool restart);
  void vote(const Votes& votes);
  void finish_sums(const Votes& votes);
  double count_over_stages(InFlight& item);
  // What queues sums of ranks on devices has thrown: the others hear of it, nothing stays queued,
  // and it is thrown again.
  [[noreturn]] void abort_sums(const std::exception& error);
  void require_idle(const char* what) const;

  // Weights and state (rank_model_state.cc).
  void fetch(size_t entry, std::vector<float>& into);
  void serve_weights();

  const Ranks world_;
  RankGrid& grid_;
  const Ranks replicas_, pipeline_;
  const SessionOptions options_;
  const SplitSettings settings_;
  Device* device_ = nullptr;
  Stream stream_;
  std::unique_ptr<ThreadPool> pool_;
  Context context_;
  Model training_, evaluation_, inference_;
  std::vector<ModelLayer> layers_;  // of models in stages
  std::vector<int> counts_;
  std::vector<Parameters::Entry> entries_;
  int64_t flat_size_ = 0;
  std::shared_ptr<Parameters> parameters_;
  std::unique_ptr<Update> update_;          // nullptr: no memory for training
  BatchCapacity capacity_;                  // of a whole micro-batch
  std::unique_ptr<SequenceShards> shards_;  // nullptr: sequences are whole
  std::unique_ptr<StageLinks> links_;       // nullptr: a single stage, or none between the devices
  std::unique_ptr<DeviceGroup> made_devices_;
  DeviceGroup* sum_devices_ = nullptr;  // of the ranks with the same stage; nullptr: none
  std::unique_ptr<StepRunner> runner_, evaluator_, predictor_;
  std::unique_ptr<Lockstep> lockstep_;
  std::unique_ptr<ChunkedTraining> chunked_;  // tbptt
  std::unique_ptr<Sums> made_sums_;
  TreeSums* tree_ = nullptr;  // the same, if they are
  std::unique_ptr<InProcessWorld> world_of_one_;
  std::unique_ptr<ProcessGroup> alone_;
  Sums* sums_ = nullptr;  // over ranks; nullptr: none
  size_t sums_set_ = 0;   // so many so far
  std::string link_text_;
  Recording update_recording_;
  Buffer totals_;                               // since the last update; behind them what they are
  LossTotals host_totals_;                      // here, of chunks and of shared sequences
  double reduce_began_ = 0, reduce_ended_ = 0;  // on the timeline
  bool clear_ = true;                           // nothing has been added for the next update
  bool updated_ = false;                        // the last batch took the update with it
  int64_t step_ = 0;
  std::array<InFlight, most_in_flight> ring_;
  size_t oldest_ = 0, in_flight_ = 0;
  StepResult result_;
  std::vector<float> prediction_;
  std::vector<std::vector<float>> gathered_;  // rank 0: the optimiser's state, while it is written
};

}  // namespace rondo
