#include "engine/parallel/pipeline_trainer.h"

#include <algorithm>
#include <cmath>

#include "engine/steps/stage_messages.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "kernels/reduce/reduce.h"
#include "kernels/totals/totals.h"

namespace rondo {
namespace {

// Values of host memory, f32 or bf16, as f32.
void append_floats(std::span<const std::byte> values, DType dtype, std::vector<float>& to) {
  const size_t n = values.size() / size_of(dtype), at = to.size();
  to.resize(at + n);
  if (dtype == DType::f32) {
    copy_bytes(to.data() + at, values.data(), values.size());
    return;
  }
  RONDO_CHECK(dtype == DType::bf16, "values of ", name_of(dtype));
  const auto* const narrow = reinterpret_cast<const bf16*>(values.data());
  std::transform(narrow, narrow + n, to.begin() + static_cast<std::ptrdiff_t>(at),
                 [](bf16 x) { return static_cast<float>(x); });
}

// Live rows of a value.
void append_floats(const Plan& plan, ValueId id, std::vector<float>& to) {
  const Value& v = plan.graph().value(id);
  const auto n = static_cast<size_t>(v.shape.planes * plan.live_rows(v.shape) * v.shape.cols);
  std::vector<std::byte> values(n * size_of(v.dtype));
  plan.read(id, values.data(), values.size());
  append_floats(values, v.dtype, to);
}

}  // namespace

PipelineTrainer::Model PipelineTrainer::build(const ModelFunction& function, DType compute,
                                              bool training) {
  Model m;
  m.graph.compute = compute;
  m.graph.training = training;
  const Outputs outputs = function(m.graph);
  RONDO_CHECK(outputs.loss != no_value, "the model function returned no loss");
  m.loss = outputs.loss;
  m.prediction = outputs.prediction;
  return m;
}

PipelineTrainer::PipelineTrainer(const ModelFunction& model, const SessionOptions& options,
                                 const PipelineSettings& settings, const Ranks& world,
                                 RankGrid& grid, const BatchCapacity& capacity)
    : world_(world), grid_(grid), options_(options), settings_(settings) {
  world_.together([&] {
    make_context(options);
    training_ = build(model, options.compute, true);
    evaluation_ = build(model, options.compute, false);
    layers_ = find_layers(training_.graph);
  });
  place(settings, capacity);
  connect_devices();
  world_.together([&] {
    const PipelineSchedule schedule =
        make_schedule(settings.schedule, grid_.split().pipeline, settings.micro_batches);
    parameters_ = std::make_unique<Parameters>(training_.graph, *device_, grid_.stage_rank());
    parameters_->initialize(options.seed);
    make_update();
    totals_ = Buffer(*device_, sizeof(LossTotals), "sums of losses");
    PipelineOptions quiet = settings.options;
    quiet.timeline = false;
    evaluator_ = std::make_unique<StepRunner>(evaluation_.graph, context_, &grid_.pipeline(),
                                              forward_only(schedule_of(settings_.micro_batches), 1),
                                              *parameters_, quiet, links_.get());
    make_pipeline(capacity);
  });
  compare_graphs();
  if (grid_.same_stages().size() > 1) make_sums();
}

void PipelineTrainer::connect_devices() {
  if (device_->kind() == DeviceKind::cpu) return;
  double able = grid_.devices() ? 1 : 0;
  world_.sum({&able, 1});
  if (able == 0) return;
  if (able != world_.size()) {
    fail_input("devices of ", able, " of ", world_.size(),
               " ranks can exchange their memory, expected all or none (is NCCL installed on some "
               "machines only?)");
  }
  const std::vector<int>& stages = grid_.pipeline_ranks();
  // Shards hand their states over on the host, and wait there.
  if (stages.size() > 1 && grid_.split().sequence == 1) {
    links_ = std::make_unique<StageLinks>(grid_.devices(), stages, grid_.stage_rank(),
                                          RankGrid::first_device_group + 1);
  }
  if (grid_.same_stages().size() > 1) {
    replica_devices_ = grid_.devices()(grid_.same_stages_ranks(), RankGrid::first_device_group);
  }
}

PipelineTrainer::~PipelineTrainer() = default;

void PipelineTrainer::make_update() {
  UpdateRanks ranks;
  if (settings_.shard_optimizer && grid_.same_stages().size() > 1) {
    ranks.owners = &grid_.same_stages();
    ranks.devices = replica_devices_.get();
  }
  if (grid_.split().pipeline > 1) {
    ranks.stages = &grid_.pipeline();
    ranks.entries = entries_;
  }
  update_ = std::make_unique<Update>(options_.optimizer, *parameters_, context_, ranks);
}

PipelineSchedule PipelineTrainer::schedule_of(int micro_batches) const {
  const WorldSplit& split = grid_.split();
  return woven() ? woven_schedule({}, micro_batches, split.sequence).schedule
                 : make_schedule(settings_.schedule, split.pipeline, micro_batches);
}

// The graph of a shard depends on the longest label: it crosses the border in CTC's lattice.
void PipelineTrainer::make_pipeline(const BatchCapacity& capacity) {
  capacity_ = capacity;
  const WorldSplit& split = grid_.split();
  if (split.sequence > 1) {
    shards_ = std::make_unique<SequenceShards>(training_.graph, training_.loss, context_,
                                               grid_.sequence(), 0, split.sequence,
                                               capacity.max_label_length);
    if (!shards_->chunk().pools.empty() && counts_.size() > 1) {
      fail_input("a model that pools its frames into one (task classify or regress) cannot be cut ",
                 "both in time (parallel.sequence) and into stages (parallel.pipeline)");
    }
  }
  PipelineOptions options = settings_.options;
  if (woven()) {  // its shards tell the time
    shards_->wait_for_timeline(std::exchange(options.timeline, false));
  }
  pipeline_ = std::make_unique<StepRunner>(
      shards_ ? shards_->chunk().graph : training_.graph, context_,
      woven() ? nullptr : &grid_.pipeline(), schedule_of(settings_.micro_batches), *parameters_,
      options, links_.get(), SharedSequences{shards_.get(), woven()});
  pipeline_->reserve(shards_ ? shards_->capacity(capacity) : capacity);
}

void PipelineTrainer::reserve(const BatchCapacity& capacity) {
  if (capacity_.holds(capacity)) return;
  const BatchCapacity both = BatchCapacity::merge(capacity_, capacity);
  if (shards_ && both.max_label_length > capacity_.max_label_length) return make_pipeline(both);
  capacity_ = both;
  pipeline_->reserve(shards_ ? shards_->capacity(both) : both);
}

void PipelineTrainer::make_context(const SessionOptions& options) {
  device_ = &require_device(options.device, options.device_index);
  if (settings_.shard_optimizer && !device_->host_memory()) {
    fail_input("parallel.shard_optimizer in pipelines works in host memory, not with --device ",
               name_of(options.device));
  }
  if (options.compute == DType::f64) fail_input("f64 is for gradient checks: it does not train");
  stream_ = device_->make_stream();
  pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : usable_cpus());
  context_ = {options.reference ? Backend::ref : backend_of(options.device), device_, &stream_,
              pool_.get()};
}

void PipelineTrainer::place(const PipelineSettings& settings, const BatchCapacity& capacity) {
  const int stages = grid_.split().pipeline;
  world_.together([&] { choose_counts(settings, capacity, stages); });
  // The clock decides, so one rank's.
  const std::string chosen = world_.broadcast(placement());
  world_.together([&] {
    counts_ = parse_placement(chosen, layers_, stages, "the placement of rank 0");
    place_layers(training_.graph, layers_, counts_);
    append_staged_backward(training_.graph, training_.loss);
    Graph& g = evaluation_.graph;
    place_layers(g, find_layers(g), counts_);
    g.keep(evaluation_.loss);
    RONDO_CHECK(evaluation_.prediction != no_value, "the model has no prediction");
    g.keep(evaluation_.prediction);
    entries_ = Parameters::entries_of(training_.graph, &flat_size_);
  });
}

void PipelineTrainer::choose_counts(const PipelineSettings& settings, const BatchCapacity& capacity,
                                    int stages) {
  if (static_cast<size_t>(stages) > layers_.size()) {
    cut_by_cost(layers_, {}, stages, {});  // says so
  }
  if (!settings.placement.empty()) {
    counts_ = parse_placement(settings.placement, layers_, stages, "parallel.placement");
    return;
  }
  if (!world_.first()) return;
  std::vector<LayerCost> costs(layers_.size());
  BatchCapacity part = capacity;
  const int shards = grid_.split().sequence;
  part.packed.frames = (capacity.packed.frames + shards - 1) / shards;
  part.packed.rows =
      std::max<int64_t>(part.packed.frames, (capacity.packed.rows + shards - 1) / shards);
  if (stages > 1) costs = measure_layers(training_.graph, training_.loss, context_, part);
  StageMemory memory;
  memory.limit = settings.stage_memory;
  const auto owners =
      static_cast<size_t>(settings.shard_optimizer ? grid_.same_stages().size() : 1);
  memory.bytes_per_weight = 2 * sizeof(float) + (Update::state_bytes(options_.optimizer, 1024) -
                                                 Update::state_bytes(options_.optimizer, 0)) /
                                                    1024 / owners;
  memory.micro_batches = [&](int stage) {
    return stored_activations(settings.schedule, stage, stages, settings.micro_batches);
  };
  counts_ = cut_by_cost(layers_, costs, stages, memory);
}

std::string PipelineTrainer::placement() const {
  std::string text;
  for (int n : counts_) text += str(text.empty() ? "" : ",", n);
  return text;
}

void PipelineTrainer::compare_graphs() {
  const std::string mine = str(training_.graph.hash());
  const std::string first = world_.broadcast(mine);
  world_.together([&] {
    if (mine != first) fail_input("its model, or where it is cut, is not that of rank 0");
  });
}

Shape PipelineTrainer::prediction_shape() const {
  return evaluation_.graph.shape(evaluation_.prediction);
}
int64_t PipelineTrainer::subsampling() const {
  return evaluation_.graph.total_factor(prediction_shape().level);
}
int32_t PipelineTrainer::output_frames(int32_t length) const {
  return evaluation_.graph.frames_at(prediction_shape().level, length);
}

Session::Memory PipelineTrainer::memory() const {
  Session::Memory m;
  m.weights = parameters_->weights().bytes();
  m.gradients = parameters_->gradients().bytes();
  m.optimizer = update_->bytes();
  m.activations = pipeline_->arena_bytes() + pipeline_->message_bytes();
  m.batch = pipeline_->batch_bytes();
  return m;
}

Sums::Times PipelineTrainer::communication() const {
  return sums_ ? sums_->times() : Sums::Times{};
}

// What is left of the reduction when the passes are over: the rest of it is beside them.
std::vector<TimedAction> PipelineTrainer::timeline() const {
  if (woven()) return shards_->timeline();
  std::vector<TimedAction> all = pipeline_->timeline();
  if (all.empty() || !sums_) return all;
  std::erase_if(all, [](const TimedAction& t) { return t.action.kind == ActionKind::reduce; });
  all.push_back({{ActionKind::reduce, pipeline_->stage()}, reduce_began_, reduce_ended_});
  return all;
}

void PipelineTrainer::accumulate(std::span<const BatchView> micro_batches, bool last) {
  if (clear_) {
    const TensorView g = parameters_->gradients();
    device_->fill_bytes(stream_, g.data, 0, g.bytes());
    device_->fill_bytes(stream_, totals_.data(), 0, sizeof(LossTotals));
    shard_totals_ = {};
  }
  clear_ = false;
  expect_losses(micro_batches);
  StepHooks hooks;
  hooks.after_loss = [this](int m, const Plan& plan) { note_losses(m, plan); };
  if (sums_ && last) {
    sums_->last_batch();
    if (sums_->marks()) {
      hooks.after_node = [this](size_t node) {
        sums_->mark(node);
        sums_->flush(node);
      };
    }
  }
  or_abort([&] { run_passes(micro_batches, std::move(hooks)); });
}

void PipelineTrainer::run_passes(std::span<const BatchView> micro_batches, StepHooks hooks) {
  if (!shards_) {
    pipeline_->run(micro_batches, hooks);
    return collect_losses();
  }
  BatchCapacity most;
  for (const BatchView& batch : micro_batches) most = BatchCapacity::merge(most, batch.extent());
  reserve(most);
  shards_->start(settings_.options.timeout);
  pipeline_->run(micro_batches, hooks);
  shards_->finish();
}

void PipelineTrainer::expect_losses(std::span<const BatchView> micro_batches) {
  losses_.assign(micro_batches.size(), {});
  losses_at_.assign(1, 0);
  if (shards_ || pipeline_->stage() != schedule().stages() - 1) return;
  const Value& loss = training_.graph.value(training_.loss);
  for (const BatchView& batch : micro_batches) {
    const auto rows = static_cast<size_t>(live_rows(training_.graph, *batch.layout, loss.shape));
    losses_at_.push_back(losses_at_.back() + rows * size_of(loss.dtype));
  }
  if (losses_at_.back() > losses_on_host_.bytes()) {
    losses_on_host_ = StagingBuffer(*device_, losses_at_.back(), "losses");
  }
}

void PipelineTrainer::note_losses(int micro_batch, const Plan& plan) {
  const auto m = static_cast<size_t>(micro_batch);
  if (shards_) {
    std::vector<double> of_sequences;
    pipeline_->add_losses(micro_batch, shard_totals_, of_sequences);
    losses_[m].assign(of_sequences.begin(), of_sequences.end());
    return;
  }
  LossTotalsArgs a;
  const TensorView computed = plan.view(training_.loss);
  RONDO_CHECK(plan.graph().shape(training_.loss).planes == 1, "losses in several planes");
  a.losses = TensorView(computed.data, computed.dtype, {computed.numel()});
  a.row_count = plan.row_count(training_.loss);
  a.extent = plan.layout(0).extent;
  a.totals = totals_.as<LossTotals>();
  run(context_, a);
  device_->copy(stream_, losses_on_host_.data() + losses_at_[m], computed.data,
                losses_at_[m + 1] - losses_at_[m]);
}

// When the run has ended.
void PipelineTrainer::collect_losses() {
  for (size_t m = 0; m + 1 < losses_at_.size(); ++m) {
    append_floats(std::span<const std::byte>(losses_on_host_.data() + losses_at_[m],
                                             losses_at_[m + 1] - losses_at_[m]),
                  training_.graph.value(training_.loss).dtype, losses_[m]);
  }
}

const std::vector<float>& PipelineTrainer::evaluate_and_predict(const BatchView& batch) {
  const Graph& g = evaluation_.graph;
  const Shape loss = g.shape(evaluation_.loss), out = prediction_shape();
  const auto losses = static_cast<size_t>(live_rows(g, *batch.layout, loss));
  const auto outputs =
      static_cast<size_t>(out.planes * live_rows(g, *batch.layout, out) * out.cols);
  evaluated_.clear();
  StepHooks hooks;
  hooks.after_loss = [&](int, const Plan& plan) {
    append_floats(plan, evaluation_.loss, evaluated_);
    append_floats(plan, evaluation_.prediction, evaluated_);
  };
  evaluator_->run({&batch, 1}, hooks);
  evaluated_.resize(losses + outputs);
  const auto n = static_cast<int64_t>(evaluated_.size());
  grid_.pipeline()
      .broadcast(TensorView(evaluated_.data(), DType::f32, {n}), grid_.split().pipeline - 1)
      .wait();
  StepResult& r = result_;
  r = {};
  const auto middle = evaluated_.begin() + static_cast<std::ptrdiff_t>(losses);
  r.losses.assign(evaluated_.begin(), middle);
  set_totals(r, totals_of(batch, r.losses));
  prediction_.assign(middle, evaluated_.end());
  return prediction_;
}

}  // namespace rondo
