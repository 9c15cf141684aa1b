#include "engine/plan/split.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "comm/schedule_timing.h"
#include "engine/graph/batch_memory.h"
#include "engine/graph/planner.h"
#include "engine/parallel/bucket_reducer.h"
#include "engine/plan/model_layers.h"
#include "engine/plan/wave.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace rondo::plan {
namespace {

constexpr double usable_memory = 0.95;  // of the device's: the rest is for libraries and contexts
// The search's bounds: beyond them nothing gains, and waves have too many tasks to try them all.
constexpr int most_micro_batches = 64, most_shards = 64, most_parts = 256;

// The link between ranks that are `stride` apart. Towards other nodes all devices of a node share
// it.
LinkModel link_between(const Cluster& c, int stride) {
  if (stride < c.per_node || c.devices <= c.per_node) return c.link;
  LinkModel shared = c.node_link;
  shared.bandwidth /= c.per_node;
  return shared;
}

// All-reduce of a group of n ranks among `span` consecutive ones, beside those of the other stages.
double ring_seconds(const Cluster& c, int n, int span, int stages, double bytes) {
  if (n == 1) return 0;
  LinkModel link = c.link;
  if (span > c.per_node) {
    // A ring leaves every node once; as many rings do as there are stages in a node.
    link.latency = c.node_link.latency;
    link.bandwidth =
        std::min(c.link.bandwidth, c.node_link.bandwidth / std::min(stages, c.per_node));
  }
  return 2 * (n - 1) * (link.latency + bytes / n / link.bandwidth);
}

struct StepTime {
  double seconds = 0, bubble = 0, communication = 0, exposed = 0;
};

}  // namespace

std::string describe(const Split& s) {
  std::string text = str("data ", s.data, " x pipeline ", s.pipeline, " x sequence ", s.sequence);
  const char* many = s.micro_batches == 1 ? " micro-batch" : " micro-batches";
  if (s.pipeline > 1 && s.sequence == 1) {
    text += str(", ", name_of(s.schedule));
    if (s.chunks > 1) text += str(" of ", s.chunks, " chunks");
  }
  return text + str(", ", s.micro_batches, many);
}

// Predictions for one model on one cluster.
struct Planner::Model {
  const Job& job;
  const Cluster& cluster;
  ModelLayers layers;
  ThreadPool pool{1};
  Context context;  // whose kernels' workspaces count

  Model(const Job& j, const Cluster& c) : job(j), cluster(c), layers(j.model, j.compute) {
    const bool gpu = cluster.device.kind != DeviceKind::cpu;
    context.backend = gpu ? Backend::sim : Backend::cpu;
    context.device = find_device(gpu ? DeviceKind::sim : DeviceKind::cpu);
    context.pool = &pool;
  }

  static BatchShape shard_of(const BatchShape& batch, const Split& s) {
    BatchShape b = batch;
    b.sequences /= s.data * s.micro_batches;
    b.frames /= s.sequence;
    return b;
  }

  std::vector<int> cut(const Split& s, const BatchShape& batch) const {
    std::vector<double> seconds;
    for (const LayerSeconds& l : layers.seconds(cluster.device, batch))
      seconds.push_back(l.total());
    return cut_evenly(seconds, s.pipeline * s.chunks);
  }
  std::vector<int64_t> weights_of_stages(const std::vector<int>& first) const {
    std::vector<int64_t> sums(first.size() - 1);
    for (size_t i = 0; i < sums.size(); ++i) {
      for (int l = first[i]; l < first[i + 1]; ++l) {
        sums[i] += layers.layers()[static_cast<size_t>(l)].weights;
      }
    }
    return sums;
  }
  double update_seconds(int64_t weights) const {
    const int slots = job.optimizer.kind == OptimizerOptions::sgd ? 1 : 2;
    return seconds_of(cluster.device.cost_of("optimizer", DType::f32),
                      update_work(weights, 3 + 2 * slots));
  }

  StepTime time(const Split& s, const BatchShape& batch) const {
    const BatchShape shard = shard_of(batch, s);
    if (s.sequence > 1) return sharded(s, shard);
    return s.pipeline > 1 ? pipelined(s, shard) : replicated(s, shard);
  }

  StepTime replicated(const Split& s, const BatchShape& batch) const;
  StepTime pipelined(const Split& s, const BatchShape& batch) const;
  StepTime sharded(const Split& s, const BatchShape& batch) const;
  double memory(const Split& s, const BatchShape& batch) const;
};

// The last micro-batch's backward pass beside the buckets that it completes.
StepTime Planner::Model::replicated(const Split& s, const BatchShape& batch) const {
  const auto seconds = layers.seconds(cluster.device, batch);
  LayerSeconds all;
  for (const LayerSeconds& l : seconds) all += l;
  Work work;
  const int compute = work.add_resource(Order::listed), link = work.add_resource(Order::listed);
  work.add({compute, (s.micro_batches - 1) * all.total() + all.forward});
  const int group = s.data * s.sequence;
  const LinkModel neighbour = link_between(cluster, 1);
  // What a bucket has to hold for latency to matter little: bucket_bytes_for()'s rule.
  const double bucket = static_cast<double>(
      bucket_bytes_for({2 * (group - 1) * neighbour.latency,
                        neighbour.bandwidth * group / (2.0 * std::max(1, group - 1))}));
  StepTime t;
  double waiting = 0;
  for (size_t l = seconds.size(); l-- > 0;) {
    const int done = work.add({compute, seconds[l].backward()});
    waiting += 4.0 * static_cast<double>(layers.layers()[l].weights);
    if (group == 1 || (waiting < bucket && l > 0)) continue;
    const double reduce = ring_seconds(cluster, group, group, 1, waiting);
    work.add({link, reduce, {done}});
    t.communication += reduce;
    waiting = 0;
  }
  const Timeline timeline = simulate(work);
  t.exposed = timeline.end - timeline.busy[static_cast<size_t>(compute)];
  t.seconds = timeline.end + update_seconds(layers.weights());
  return t;
}

StepTime Planner::Model::pipelined(const Split& s, const BatchShape& batch) const {
  const auto seconds = layers.seconds(cluster.device, batch);
  const std::vector<int> first = cut(s, batch);
  const auto weights = weights_of_stages(first);
  std::vector<LayerSeconds> stages(first.size() - 1);
  for (size_t i = 0; i < stages.size(); ++i) {
    for (int l = first[i]; l < first[i + 1]; ++l) stages[i] += seconds[static_cast<size_t>(l)];
  }
  const LinkModel link = link_between(cluster, 1);
  const auto boundary_bytes = [&](int stage) {
    const ModelLayer& last =
        layers.layers()[static_cast<size_t>(first[static_cast<size_t>(stage) + 1]) - 1];
    return last.output_row * batch.sequences *
           std::ceil(batch.frames /
                     static_cast<double>(layers.graph().total_factor(last.output_level)));
  };
  StepTime t;
  PipelineCosts costs;
  costs.latency = link.latency;
  costs.compute = [&](int, const Action& a) {
    const LayerSeconds& stage = stages[static_cast<size_t>(a.stage)];
    switch (a.kind) {
      case ActionKind::forward:
        return stage.forward;
      case ActionKind::backward:
        return stage.backward();
      case ActionKind::input_backward:
        return stage.input_backward;
      case ActionKind::weight_backward:
        return stage.weight_backward;
      case ActionKind::reduce:
        return ring_seconds(cluster, s.data, s.devices(), s.pipeline,
                            4.0 * static_cast<double>(weights[static_cast<size_t>(a.stage)]));
      default:
        return 0.0;
    }
  };
  costs.transfer = [&](int, const Action& a) {
    const int lower = a.kind == ActionKind::send_activation ? a.stage : a.stage - 1;
    return boundary_bytes(lower) / link.bandwidth;
  };
  const PipelineTimeline timeline =
      pipeline_timing(make_schedule(s.schedule, s.pipeline, s.micro_batches, s.chunks), costs);
  double busy = 0, computed = 0;
  for (size_t r = 0; r < timeline.ranks.size(); ++r) {
    busy += timeline.busy(static_cast<int>(r));
    for (const TimedAction& a : timeline.ranks[r]) {
      if (a.action.kind == ActionKind::reduce) {
        t.communication += (a.end - a.start) / s.pipeline;
      } else {
        computed = std::max(computed, a.end);
      }
    }
  }
  t.bubble = 1 - busy / (computed * static_cast<double>(timeline.ranks.size()));
  t.exposed = std::min(t.communication, timeline.duration() - computed);
  t.seconds =
      timeline.duration() + update_seconds(*std::max_element(weights.begin(), weights.end()));
  return t;
}

StepTime Planner::Model::sharded(const Split& s, const BatchShape& batch) const {
  const std::vector<int> first = cut(s, batch);
  const auto weights = weights_of_stages(first);
  WaveCosts c;
  c.shards = s.sequence;
  c.micro_batches = s.micro_batches;
  c.layers = layers.parts(cluster.device, batch);
  const LinkModel side = link_between(cluster, 1), up = link_between(cluster, s.sequence);
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const ModelLayer& layer = layers.layers()[l];
    c.directions.push_back(layer.directions);
    const auto stage = std::upper_bound(first.begin(), first.end() - 1, static_cast<int>(l));
    c.stage_of_layer.push_back(static_cast<int>(stage - first.begin()) - 1);
    c.state_message.push_back(side.seconds(4 * batch.sequences * layer.state));
    const double rows =
        batch.sequences * std::ceil(batch.frames / static_cast<double>(layers.graph().total_factor(
                                                       layer.output_level)));
    c.output_message.push_back(up.seconds(rows * layer.output_row));
  }
  c.alpha = c.beta = layers.ctc_seconds(cluster.device, batch) / 2;
  c.ctc_message = side.seconds(4 * batch.sequences * (2 * batch.labels + 1));
  const Wave wave = build_wave(c);
  const Timeline timeline = simulate(wave.work);
  double busy = 0;
  for (int r = 0; r < wave.ranks; ++r) busy += timeline.busy[static_cast<size_t>(r)];
  StepTime t;
  const int64_t most = *std::max_element(weights.begin(), weights.end());
  // Gradients are complete when the last micro-batch is: nothing hides their reduction.
  t.communication = t.exposed = ring_seconds(cluster, s.data * s.sequence, s.devices(), s.pipeline,
                                             4.0 * static_cast<double>(most));
  t.bubble = 1 - busy / (timeline.end * wave.ranks);
  t.seconds = timeline.end + t.communication + update_seconds(most);
  return t;
}

double Planner::Model::memory(const Split& s, const BatchShape& batch) const {
  const BatchShape shard = shard_of(batch, s);
  BatchCapacity capacity;
  capacity.packed.sequences = static_cast<int32_t>(std::ceil(shard.sequences));
  capacity.packed.frames = static_cast<int32_t>(std::ceil(shard.frames));
  capacity.packed.rows = int64_t{capacity.packed.sequences} * capacity.packed.frames;
  capacity.max_label_length = static_cast<int32_t>(std::ceil(shard.labels));
  capacity.labels = int64_t{capacity.packed.sequences} * capacity.max_label_length;
  const std::vector<int> first = cut(s, shard);
  const auto weights = weights_of_stages(first);
  const Graph graph = layers.staged(first);
  const auto batch_bytes =
      static_cast<double>(plan_batch_bytes(graph, capacity, context.device->kind()));
  double most = 0;
  for (int rank = 0; rank < s.pipeline; ++rank) {
    double bytes = batch_bytes;
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const int stage = rank + chunk * s.pipeline;
      const int64_t w = weights[static_cast<size_t>(stage)];
      bytes += 8.0 * static_cast<double>(w) +
               static_cast<double>(Optimizer::state_bytes(job.optimizer, w));
    }
    const int stored = s.sequence > 1   ? s.micro_batches
                       : s.pipeline > 1 ? stored_activations(s.schedule, rank, s.pipeline,
                                                             s.micro_batches, s.chunks)
                                        : 1;
    // Of a rank's stages the largest, for as many as it stores at a time.
    size_t arena = 0;
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const int stage = s.pipeline * s.chunks == 1 ? all_stages : rank + chunk * s.pipeline;
      arena = std::max(
          arena, plan_memory(graph, context, capacity, Reuse::by_liveness, stage).arena_bytes);
    }
    most = std::max(most, bytes + static_cast<double>(arena) * stored);
  }
  return most;
}

Planner::Planner(Job job, Cluster cluster) : job_(std::move(job)), cluster_(std::move(cluster)) {
  RONDO_CHECK(!job_.batches.empty(), "a plan for no batches");
  model_ = std::make_unique<Model>(job_, cluster_);
}

Planner::~Planner() = default;

int Planner::layers() const { return static_cast<int>(model_->layers.layers().size()); }
int64_t Planner::weights() const { return model_->layers.weights(); }

std::string Planner::objection(const Split& s) const {
  if (s.pipeline * s.chunks > layers()) {
    return str(s.pipeline * s.chunks, " stages of a model with ", layers(), " layers");
  }
  if (s.pipeline > 1 && s.sequence == 1) {
    const std::string why = schedule_objection(s.schedule, s.pipeline, s.micro_batches, s.chunks);
    if (!why.empty()) return why;
  }
  for (const WeightedShape& b : job_.batches) {
    if (b.shape.sequences < s.data * s.micro_batches) {
      return str("batches of ", b.shape.sequences, " utterances for ", s.data, " replicas of ",
                 s.micro_batches, " micro-batches");
    }
    if (b.shape.frames <
        s.sequence * static_cast<double>(model_->layers.graph().total_factor(
                         static_cast<int>(model_->layers.graph().levels.size()) - 1))) {
      return str("utterances of ", b.shape.frames, " frames for ", s.sequence, " shards");
    }
  }
  return "";
}

Prediction Planner::predict(const Split& s) const {
  const std::string why = objection(s);
  RONDO_CHECK(why.empty(), why);
  Prediction p;
  p.split = s;
  double weights = 0, frames = 0, exposed = 0;
  for (const WeightedShape& b : job_.batches) {
    const StepTime t = model_->time(s, b.shape);
    weights += b.weight;
    frames += b.weight * b.shape.rows();
    p.seconds += b.weight * t.seconds;
    p.bubble += b.weight * t.bubble;
    p.communication += b.weight * t.communication;
    exposed += b.weight * t.exposed;
    p.memory_bytes = std::max(p.memory_bytes, model_->memory(s, b.shape));
  }
  p.frames_per_second = frames / p.seconds;
  p.hidden = p.communication > 0 ? 1 - exposed / p.communication : 0;
  p.seconds /= weights;
  p.bubble /= weights;
  p.communication /= weights;
  p.fits = p.memory_bytes <= usable_memory * cluster_.device.memory_bytes;
  return p;
}

namespace {

bool better(const Prediction& a, const Prediction& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.memory_bytes < b.memory_bytes;
  return a.seconds < b.seconds;
}

std::vector<std::pair<ScheduleKind, int>> schedules_for(const Split& s) {
  if (s.pipeline == 1 || s.sequence > 1) return {{ScheduleKind::gpipe, 1}};
  return {{ScheduleKind::gpipe, 1},
          {ScheduleKind::one_f_one_b, 1},
          {ScheduleKind::interleaved, 2},
          {ScheduleKind::zero_bubble, 1}};
}

std::vector<int> micro_batch_counts(int pipeline) {
  std::set<int> counts;
  for (int m = 1; m <= most_micro_batches; m *= 2)
    counts.insert({m, std::min(most_micro_batches, m * pipeline)});
  return {counts.begin(), counts.end()};
}

}  // namespace

std::vector<Prediction> Planner::rank() const {
  std::vector<Prediction> ranking;
  const int n = cluster_.devices;
  for (int pipeline = 1; pipeline <= std::min(n, layers()); ++pipeline) {
    for (int sequence = 1; sequence * pipeline <= n && sequence <= most_shards; ++sequence) {
      if (n % (pipeline * sequence) != 0) continue;
      Split s{n / (pipeline * sequence), pipeline, sequence};
      Prediction best;
      bool found = false;
      for (const auto& [kind, chunks] : schedules_for(s)) {
        s.schedule = kind;
        s.chunks = chunks;
        // Powers of two, and multiples of the ranks, which some schedules need.
        for (int count : micro_batch_counts(pipeline)) {
          s.micro_batches = count;
          if (sequence > 1 && sequence * count > most_parts) continue;
          if (!objection(s).empty()) continue;
          const Prediction p = predict(s);
          if (!found || better(p, best)) best = p;
          found = true;
        }
      }
      if (found) ranking.push_back(best);
    }
  }
  std::stable_sort(ranking.begin(), ranking.end(), better);
  return ranking;
}

}  // namespace rondo::plan
