#include "engine/rank_model.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/lstm/lstm_stack.h"
#include "engine/reduce/device_bucket_sums.h"
#include "engine/steps/stage_messages.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace rondo {
namespace {

void require_same_parameters(const Graph& training, const Graph& evaluation) {
  std::vector<std::pair<std::string, Shape>> a, b;
  for (const Value& v : training.values) {
    if (v.role == ValueRole::parameter) a.emplace_back(v.name, v.shape);
  }
  for (const Value& v : evaluation.values) {
    if (v.role == ValueRole::parameter) b.emplace_back(v.name, v.shape);
  }
  RONDO_CHECK(a == b, "the model function made different parameters for training and evaluation");
}

Ranks ranks_of(ProcessGroup* group, CommClock::duration patience) {
  return group ? Ranks(*group, patience) : Ranks();
}

// A first sum: devices that are connected by it would wait for each other in the middle of a batch.
void connect(DeviceGroup& sums) {
  const int64_t elements = 64 * sums.size();
  const Buffer memory(sums.device(), static_cast<size_t>(elements) * sizeof(float), "a first sum");
  sums.device().fill_bytes(sums.stream(), memory.data(), 0, memory.bytes());
  sums.all_reduce(TensorView(memory.data(), DType::f32, {elements}), Reduction::sum).wait();
}

}  // namespace

RankModel::Model RankModel::build(const ModelFunction& function, DType compute, bool training) {
  Model m;
  m.graph.compute = compute;
  m.graph.training = training;
  const Outputs outputs = function(m.graph);
  RONDO_CHECK(outputs.loss != no_value, "the model function returned no loss");
  m.loss = outputs.loss;
  m.prediction = outputs.prediction;
  const Shape& loss = m.graph.shape(m.loss);
  RONDO_CHECK(loss.planes == 1 && loss.cols == 1, "the loss is ", to_string(loss),
              ", expected one number per row");
  return m;
}

RankModel::RankModel(const ModelFunction& model, const SessionOptions& options,
                     const SplitSettings& settings, const Ranks& world, RankGrid& grid,
                     const BatchCapacity& capacity)
    : world_(world),
      grid_(grid),
      replicas_(ranks_of(grid.same_stage(), settings.options.timeout)),
      pipeline_(ranks_of(grid.pipeline(), settings.options.timeout)),
      options_(options),
      settings_(settings) {
  world_.together([&] {
    make_context();
    training_ = build(model, options_.compute, true);
    evaluation_ = build(model, options_.compute, false);
    require_same_parameters(training_.graph, evaluation_.graph);
  });
  if (!whole()) place(capacity);
  connect_devices();
  world_.together([&] {
    add_backward();
    make_parameters();
    make_runner(capacity);
  });
  compare_graphs();
  if (update_) make_sums();
}

RankModel::~RankModel() {
  // What is in flight still uses the memory.
  if (in_flight_ == 0) return;
  try {
    stream_.synchronize();
  } catch (...) {  // nobody is left to tell
  }
}

void RankModel::make_context() {
  device_ = &require_device(options_.device, options_.device_index);
  if (!whole()) {
    if (settings_.divide_optimizer && !device_->host_memory()) {
      fail_input("parallel.divide_optimizer in pipelines works in host memory, not with --device ",
                 name_of(options_.device));
    }
    if (options_.compute == DType::f64) fail_input("f64 is for gradient checks: it does not train");
  }
  stream_ = device_->make_stream();
  pool_ = std::make_unique<ThreadPool>(cpu_threads(options_.threads));
  context_ = {options_.reference ? Backend::ref : backend_of(options_.device), device_, &stream_,
              pool_.get()};
}

void RankModel::place(const BatchCapacity& capacity) {
  world_.together([&] {
    layers_ = find_layers(training_.graph);
    choose_counts(capacity);
  });
  // The clock decides, so one rank's.
  const std::string chosen = world_.broadcast(placement());
  world_.together([&] {
    counts_ = parse_placement(chosen, layers_, stages(), "the placement of rank 0");
    place_layers(training_.graph, layers_, counts_);
    Graph& g = evaluation_.graph;
    place_layers(g, find_layers(g), counts_);
    RONDO_CHECK(evaluation_.prediction != no_value, "the model has no prediction");
  });
}

void RankModel::choose_counts(const BatchCapacity& capacity) {
  if (static_cast<size_t>(stages()) > layers_.size()) {
    cut_by_cost(layers_, {}, stages(), {});  // says so
  }
  if (!settings_.placement.empty()) {
    counts_ = parse_placement(settings_.placement, layers_, stages(), "parallel.placement");
    return;
  }
  if (!world_.first()) return;
  std::vector<LayerCost> costs(layers_.size());
  BatchCapacity part = capacity;
  const int shards = grid_.split().sequence;
  part.packed.frames = (capacity.packed.frames + shards - 1) / shards;
  part.packed.rows =
      std::max<int64_t>(part.packed.frames, (capacity.packed.rows + shards - 1) / shards);
  if (stages() > 1) costs = measure_layers(training_.graph, training_.loss, context_, part);
  StageMemory memory;
  memory.limit = settings_.stage_memory;
  const bool divides = settings_.divide_optimizer && grid_.same_stage();
  const auto owners = static_cast<size_t>(divides ? grid_.same_stage()->size() : 1);
  memory.bytes_per_weight = 2 * sizeof(float) + (Update::state_bytes(options_.optimizer, 1024) -
                                                 Update::state_bytes(options_.optimizer, 0)) /
                                                    1024 / owners;
  memory.micro_batches = [&](int stage) {
    return stored_activations(settings_.schedule, stage, stages(), settings_.micro_batches);
  };
  counts_ = cut_by_cost(layers_, costs, stages(), memory);
}

std::string RankModel::placement() const {
  std::string text;
  for (int n : counts_) text += str(text.empty() ? "" : ",", n);
  return text;
}

void RankModel::add_backward() {
  if (!whole()) {
    append_staged_backward(training_.graph, training_.loss);
  } else {
    if (options_.fuse_output_from > 0 && options_.tbptt == 0 && !options_.lockstep) {
      fuse_loss(training_.graph, training_.loss, options_.fuse_output_from);
    }
    // What has no parameters, and is not for training, has no gradients either.
    if (options_.training || training_.graph.value(training_.loss).needs_gradient)
      append_backward(training_.graph, training_.loss);
  }
  inference_ = evaluation_;
  evaluation_.graph.keep(evaluation_.loss);
  if (evaluation_.prediction != no_value) {
    evaluation_.graph.keep(evaluation_.prediction);
    inference_.graph.keep(inference_.prediction);
  }
}

void RankModel::connect_devices() {
  sum_devices_ = grid_.given_devices();
  if (sum_devices_ || device_->kind() == DeviceKind::cpu || world_.size() == 1) return;
  double able = grid_.devices() ? 1 : 0;
  world_.sum({&able, 1});
  if (able == 0) return;
  if (able != world_.size()) {
    fail_input("devices of ", able, " of ", world_.size(),
               " ranks can exchange their memory, expected all or none (is NCCL installed on some "
               "machines only?)");
  }
  // Shards hand their states over on the host, and wait there.
  if (stages() > 1 && grid_.split().sequence == 1) {
    links_ = std::make_unique<StageLinks>(grid_.devices(), grid_.pipeline_ranks(),
                                          grid_.stage_rank(), RankGrid::first_device_group + 1);
  }
  if (grid_.same_stage()) {
    made_devices_ = grid_.devices()(grid_.same_stage_ranks(), RankGrid::first_device_group);
    sum_devices_ = made_devices_.get();
  }
}

void RankModel::make_parameters() {
  entries_ = Parameters::entries_of(training_.graph, &flat_size_);
  if (options_.weights) return take_shared_weights();
  parameters_ = std::make_shared<Parameters>(
      training_.graph, *device_, grid_.stage_rank(),
      options_.training ? Parameters::Gradients::allocated : Parameters::Gradients::absent);
  parameters_->initialize(options_.seed);
  if (!options_.training) return;
  UpdateRanks ranks = options_.ranks;
  if (settings_.divide_optimizer && grid_.same_stage()) {
    ranks = {grid_.same_stage(), sum_devices_, whole()};
  }
  if (stages() > 1) {
    ranks.stages = grid_.pipeline();
    ranks.entries = entries_;
  }
  update_ = std::make_unique<Update>(options_.optimizer, *parameters_, context_, ranks);
  if (options_.tbptt > 0 && whole()) {
    chunked_ = std::make_unique<ChunkedTraining>(training_.graph, training_.loss, context_,
                                                 *parameters_, options_.tbptt, StateGradients::cut);
  }
  totals_ = Buffer(*device_, 2 * sizeof(LossTotals), "sums of losses");
  for (InFlight& item : ring_) {
    item.done = device_->make_event();
    item.at.reserve(2);
    item.fixed = StagingBuffer(*device_, sizeof(InFlight::Returned), "results");
    new (item.fixed.data()) InFlight::Returned();
  }
}

void RankModel::take_shared_weights() {
  const Parameters& given = *options_.weights;
  RONDO_CHECK(!options_.training && whole(), "shared weights are for inference with a whole model");
  RONDO_CHECK(&given.device() == device_ && given.gradients().data == nullptr,
              "the weights are of another device, or of a session that trains");
  const auto same = [](const Parameters::Entry& a, const Parameters::Entry& b) {
    return a.name == b.name && a.shape() == b.shape() && a.offset == b.offset;
  };
  RONDO_CHECK(std::equal(entries_.begin(), entries_.end(), given.entries().begin(),
                         given.entries().end(), same),
              "the weights are of another model");
  parameters_ = options_.weights;
}

PipelineSchedule RankModel::schedule_of(int micro_batches) const {
  if (woven()) return woven_schedule({}, micro_batches, grid_.split().sequence).schedule;
  if (whole()) return make_schedule(ScheduleKind::one_f_one_b, 1, 1);
  return make_schedule(settings_.schedule, stages(), micro_batches);
}

// The graph of a shard depends on the longest label: it crosses the border in CTC's lattice.
void RankModel::make_runner(const BatchCapacity& capacity) {
  capacity_ = capacity;
  if (grid_.split().sequence > 1) {
    shards_ = std::make_unique<SequenceShards>(training_.graph, training_.loss, context_,
                                               *grid_.sequence(), 0, grid_.split().sequence,
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
  Graph graph = shards_ ? shards_->chunk().graph : training_.graph;
  if (whole()) stack_lstm_layers(graph, context_);
  runner_ = std::make_unique<StepRunner>(
      graph, context_, grid_.pipeline(), schedule_of(settings_.micro_batches), *parameters_,
      options, links_.get(), SharedSequences{shards_.get(), woven()});
  if (!whole()) runner_->reserve(shards_ ? shards_->capacity(capacity) : capacity);
}

void RankModel::compare_graphs() {
  const std::string mine = str(training_.graph.hash());
  const std::string first = world_.broadcast(mine);
  world_.together([&] {
    if (mine == first) return;
    fail_input(whole() ? "its model is another one than that of rank 0"
                       : "its model, or where it is cut, is not that of rank 0");
  });
}

void RankModel::make_sums() {
  if (settings_.batch_parts > 0) {
    RONDO_CHECK(whole(), "a tree of sums over ranks with parts of models");
    ProcessGroup* group = grid_.same_stage();
    if (!group) {
      world_of_one_ = std::make_unique<InProcessWorld>(1);
      alone_ = make_ring_group(world_of_one_->transport(0));
      group = alone_.get();
    }
    auto tree = std::make_unique<TreeSums>(*group, settings_.batch_parts, *parameters_, stream_,
                                           settings_.votes);
    tree_ = tree.get();
    made_sums_ = std::move(tree);
    return set_sums(made_sums_.get());
  }
  if (!grid_.same_stage()) return;
  ProcessGroup& ranks = *grid_.same_stage();
  const Graph& graph = runner_->stage_graph();
  const size_t votes = whole() ? settings_.votes : 0;
  const SumsAt at = whole() && update_->divided() ? SumsAt::own_blocks : SumsAt::everywhere;
  if (sum_devices_) {
    if (made_devices_) connect(*made_devices_);
    made_sums_ = std::make_unique<DeviceBucketSums>(ranks, *sum_devices_, context_, graph,
                                                    *parameters_, bucket_bytes(), votes, at);
  } else if (device_->kind() == DeviceKind::cpu) {
    made_sums_ =
        std::make_unique<BucketSums>(ranks, graph, *parameters_, bucket_bytes(), votes, at);
  } else {
    made_sums_ = std::make_unique<GroupSums>(ranks, *parameters_, votes);
  }
  set_sums(made_sums_.get());
}

int64_t RankModel::bucket_bytes() {
  if (settings_.bucket_bytes > 0) return settings_.bucket_bytes;
  ProcessGroup& ranks = *grid_.same_stage();
  const LinkSpeed link = sum_devices_ ? measure_link(*sum_devices_, ranks) : measure_link(ranks);
  const int64_t bytes = bucket_bytes_for(link);
  link_text_ = str("all-reduce: ", std::lround(link.latency * 1e6), " us, ",
                   std::lround(link.bandwidth / 1e6), " MB/s; gradients in buckets of ",
                   bytes / 1024, " KiB");
  return bytes;
}

void RankModel::set_sums(Sums* sums) {
  sums_ = sums;
  if (sums) ++sums_set_;
}

DataShare RankModel::share() const {
  if (tree_) return {tree_->own(), settings_.batch_parts};
  const int own = settings_.micro_batches, begin = grid_.replica() * own;
  return {{begin, begin + own}, grid_.split().data * own};
}

Parameters& RankModel::parameters() {
  if (in_flight_ > 0) stream_.synchronize();
  return *parameters_;
}

Update& RankModel::optimizer() {
  RONDO_CHECK(update_, "this session was made without memory for training");
  return *update_;
}

bool RankModel::any_stage(bool here) const {
  double wanted = here ? 1 : 0;
  pipeline_.sum({&wanted, 1});
  return wanted > 0;
}

int64_t RankModel::weights() const {
  int64_t n = 0;
  for (const auto& e : entries_) n += e.numel();
  return n;
}

int64_t RankModel::frozen() const {
  int64_t n = 0;
  for (const auto& e : entries_) n += e.frozen ? e.numel() : 0;
  return n;
}

std::string RankModel::describe() const {
  const int threads = context_.pool->size(), ranks = world_.size();
  const std::string place =
      str("on ", device_->describe(), " with ", threads, threads == 1 ? " thread" : " threads");
  if (whole()) return place + (ranks > 1 ? str(", on each of ", ranks, " ranks") : "");
  const int shards = grid_.split().sequence, each = stages() * shards;
  if (stages() == 1) {
    return str(place, ", on each of ", ranks, " ranks, of which ", shards, " share each sequence");
  }
  const int pipelines = ranks / each;
  return str(place, ", ", pipelines, pipelines == 1 ? " pipeline of " : " pipelines of ", each,
             " ranks", shards == 1 ? "" : str(": ", stages(), " stages of ", shards, " shards"));
}

void RankModel::set_learning_rate(double rate) {
  RONDO_CHECK(!updated_, "the update has been enqueued with its batch");
  optimizer().set_learning_rate(rate);
}

Shape RankModel::prediction_shape() const {
  RONDO_CHECK(evaluation_.prediction != no_value, "the model has no prediction");
  return evaluation_.graph.shape(evaluation_.prediction);
}
int64_t RankModel::subsampling() const {
  return evaluation_.graph.total_factor(prediction_shape().level);
}
int32_t RankModel::output_frames(int32_t length) const {
  return evaluation_.graph.frames_at(prediction_shape().level, length);
}

Sums::Times RankModel::communication() const {
  Sums::Times t = sums_ ? sums_->times() : Sums::Times{};
  t.communication += update_->spreading();
  t.exposed += update_->spreading();
  return t;
}

// What is left of the reduction when the passes are over: the rest of it is beside them.
std::vector<TimedAction> RankModel::timeline() const {
  if (woven()) return shards_->timeline();
  std::vector<TimedAction> all = runner_->timeline();
  if (all.empty() || !sums_) return all;
  std::erase_if(all, [](const TimedAction& t) { return t.action.kind == ActionKind::reduce; });
  all.push_back({{ActionKind::reduce, runner_->stage()}, reduce_began_, reduce_ended_});
  return all;
}

// The forward pass alone of `graph`, on the ranks of a replica.
StepRunner& RankModel::evaluator(std::unique_ptr<StepRunner>& runner, const Graph& graph) {
  if (runner) return *runner;
  Graph executed = graph;
  if (whole()) stack_lstm_layers(executed, context_);
  PipelineOptions quiet = settings_.options;
  quiet.timeline = false;
  runner = std::make_unique<StepRunner>(executed, context_, grid_.pipeline(),
                                        forward_only(schedule_of(settings_.micro_batches), 1),
                                        *parameters_, quiet, links_.get());
  return *runner;
}

void RankModel::run_evaluation(StepRunner& runner, const BatchView& batch,
                               const std::function<void(const BoundGraph&)>& read) {
  require_idle("an evaluation");
  if (whole()) {
    check_batch(runner.stage_graph(), batch);  // before memory is laid out by what it claims
    reserve(runner, batch.extent());
  }
  StepHooks hooks;
  hooks.after_loss = [&](int, const BoundGraph& bound) { read(bound); };
  runner.run({&batch, 1}, hooks);
}

const StepResult& RankModel::evaluate(const BatchView& batch, bool predict) {
  StepResult& r = result_;
  r.gradient_norm = 0;
  r.skipped = false;
  r.losses.clear();
  run_evaluation(evaluator(evaluator_, evaluation_.graph), batch, [&](const BoundGraph& bound) {
    bound.append_floats(evaluation_.loss, r.losses);
    if (!predict) return;
    prediction_.clear();
    bound.append_floats(evaluation_.prediction, prediction_);
  });
  if (stages() > 1) spread_evaluation(batch, predict);
  set_totals(r, totals_of(batch, r.losses));
  return r;
}

// From the last stage to the others.
void RankModel::spread_evaluation(const BatchView& batch, bool predicted) {
  const Graph& g = evaluation_.graph;
  const auto spread = [&](const Shape& shape, std::vector<float>& values) {
    const int64_t n = shape.planes * live_rows(g, *batch.layout, shape) * shape.cols;
    values.resize(static_cast<size_t>(n));
    if (n == 0) return;
    grid_.pipeline()->broadcast(TensorView(values.data(), DType::f32, {n}), stages() - 1).wait();
  };
  spread(g.shape(evaluation_.loss), result_.losses);
  if (predicted) spread(prediction_shape(), prediction_);
}

const std::vector<float>& RankModel::evaluate_and_predict(const BatchView& batch) {
  RONDO_CHECK(evaluation_.prediction != no_value, "the model has no prediction");
  evaluate(batch, true);
  return prediction_;
}

const std::vector<float>& RankModel::predict(const BatchView& batch) {
  if (!whole()) return evaluate_and_predict(batch);
  RONDO_CHECK(inference_.prediction != no_value, "the model has no prediction");
  prediction_.clear();
  run_evaluation(evaluator(predictor_, inference_.graph), batch, [&](const BoundGraph& bound) {
    bound.append_floats(inference_.prediction, prediction_);
  });
  return prediction_;
}

}  // namespace rondo
