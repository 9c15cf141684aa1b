#include "engine/plan/step_model.h"

#include <algorithm>
#include <cmath>

#include "engine/cut/sequence_cut.h"
#include "engine/graph/batch_memory.h"
#include "engine/graph/planner.h"
#include "engine/plan/cluster_links.h"
#include "engine/reduce/bucket_sums.h"

namespace rondo::plan {
namespace {

double gradient_bytes(int64_t weights) { return 4.0 * static_cast<double>(weights); }

// The weights of the pipeline's rank that holds most.
int64_t most_weights(const Split& s, const std::vector<int64_t>& of_stages) {
  std::vector<int64_t> sums(static_cast<size_t>(s.pipeline));
  for (size_t i = 0; i < of_stages.size(); ++i) sums[i % sums.size()] += of_stages[i];
  return *std::max_element(sums.begin(), sums.end());
}

}  // namespace

StepModel::StepModel(const Job& job, const Cluster& cluster)
    : job_(job), cluster_(cluster), layers_(job.model, job.compute) {
  // Workspaces follow from shapes alone. So there is no device here: a prediction for GPUs is the
  // same in every build, with and without CUDA and the simulator. (Of Backend::cuda it would depend
  // on the libraries of this machine.)
  context_.backend = cluster.device.kind == DeviceKind::cpu ? Backend::cpu : Backend::sim;
  context_.pool = &pool_;
}

BatchShape StepModel::part_of(const BatchShape& batch, const Split& s) {
  BatchShape b = batch;
  b.sequences /= s.data * s.micro_batches * s.batches;
  b.frames /= s.sequence;
  b.longest /= s.sequence;
  return b;
}

std::vector<int> StepModel::cut(const Split& s, const BatchShape& part) const {
  std::vector<double> seconds;
  for (const LayerSeconds& l : layers_.seconds(cluster_.device, part)) seconds.push_back(l.total());
  return cut_evenly(seconds, s.pipeline);
}

std::vector<int64_t> StepModel::weights_of_stages(const std::vector<int>& first) const {
  std::vector<int64_t> sums(first.size() - 1);
  for (size_t i = 0; i < sums.size(); ++i) {
    for (int l = first[i]; l < first[i + 1]; ++l) {
      sums[i] += layers_.layers()[static_cast<size_t>(l)].weights;
    }
  }
  return sums;
}

double StepModel::pass_seconds(int64_t weights, int arrays) const {
  return seconds_of(cluster_.device.cost_of("optimizer", DType::f32), update_work(weights, arrays));
}

// Where the optimiser is divided, the part's gradients are copied out and its weights copied to the
// memory in which they travel; out of that come all. The norm is of the part, or, of stages, of
// whole gradients.
double StepModel::update_seconds(const Split& s, int64_t weights) const {
  const OptimizerOptions& o = job_.optimizer;
  if (!s.shard_optimizer || s.owners() == 1) return pass_seconds(weights, update_arrays(o));
  const int64_t part = PartLayout(weights, s.owners()).part();
  const int copies = 4, clear = 1, squares = 1, unpack = 2;
  const int of_whole = clear + unpack + (s.staged() ? squares : 0);
  const int of_part = copies + step_arrays(o) + (s.staged() ? 0 : squares);
  return pass_seconds(weights, of_whole) + pass_seconds(part, of_part);
}

// Counts, votes, the gradient's norm: a few numbers that all ranks sum one after the other.
double StepModel::small_sums(const Split& s) const {
  const int sums = s.staged() ? 4 : s.sequence > 1 || s.shard_optimizer ? 2 : 1;
  const double bytes = 8.0 * (10 + s.devices());
  return sums * doubling_seconds(cluster_, s.devices(), bytes);
}

// What `layer` gives to the next one.
double StepModel::message_bytes(int layer, const BatchShape& part) const {
  const ModelLayer& l = layers_.layers()[static_cast<size_t>(layer)];
  const auto factor = static_cast<double>(layers_.graph().total_factor(l.output_level));
  const bool halved = job_.wire == DType::bf16 && job_.compute == DType::f32;
  return part.sequences * std::ceil(part.frames / factor) * l.output_row * (halved ? 0.5 : 1);
}

StepTime StepModel::time(const Split& s, const BatchShape& batch) const {
  const BatchShape part = part_of(batch, s);
  const bool staged = s.staged() && (s.pipeline > 1 || s.sequence > 1);
  StepTime t = staged ? stages(s, part) : whole_models(s, part);
  share_cores(s, batch, t);
  return t;
}

double StepModel::least_seconds(const Split& s, const BatchShape& batch) const {
  const BatchShape part = part_of(batch, s);
  const auto seconds = layers_.seconds(cluster_.device, part);
  const std::vector<int> first = cut(s, part);
  std::vector<double> ranks(static_cast<size_t>(s.pipeline));
  for (size_t stage = 0; stage + 1 < first.size(); ++stage) {
    for (int l = first[stage]; l < first[stage + 1]; ++l) {
      ranks[stage % ranks.size()] += seconds[static_cast<size_t>(l)].total();
    }
  }
  return s.batches * s.micro_batches * *std::max_element(ranks.begin(), ranks.end());
}

// An update follows the gradients' sums. Where the optimiser is divided each rank updates its part,
// and the weights come back.
void StepModel::add_update(const Split& s, int64_t weights, StepTime& t) const {
  const int owners = s.owners();
  const bool divided = s.shard_optimizer && owners > 1;
  const double update = update_seconds(s, weights);
  t.computing += update;
  t.seconds += update + small_sums(s);
  if (!divided) return;
  const int64_t part = PartLayout(weights, owners).part();
  const double gather =
      half_ring_seconds(ring_link(cluster_, s), owners, gradient_bytes(part) * owners);
  t.communication += gather;
  t.exposed += gather;
  t.seconds += gather;
}

// What is left of the sums when all is computed, without the copying at their end.
double StepModel::left_of_sums(const std::vector<Reduction>& stages, double left, int pipeline,
                               StepTime& t) {
  double copying = 0;
  for (const Reduction& r : stages) {
    t.communication += r.seconds / pipeline;
    copying = std::max(copying, r.copying);
  }
  return std::clamp(left - copying, 0.0, t.communication);
}

// Ranks, the threads that prepare their batches and those that serve their messages on the cores of
// one machine.
void StepModel::share_cores(const Split& s, const BatchShape& batch, StepTime& t) const {
  const DeviceModel& device = cluster_.device;
  if (device.cores == 0) return;
  const auto ranks = static_cast<double>(std::min(s.devices(), cluster_.per_node));
  const auto cores = static_cast<double>(device.cores), threads = ranks * device.threads;
  t.seconds = std::max(t.seconds, t.computing * threads / cores);
  const double before = t.seconds;
  // Every rank prepares the batch of its replica. What it sends, sums and receives while it
  // computes is the work of other threads of its own.
  const double input = batch.rows() / s.data * job_.input_seconds_per_frame;
  const double beside = input + t.messages + std::max(0.0, t.communication - t.exposed);
  const double elsewhere = std::max(0.0, cores - threads) * t.seconds / ranks;
  const double used = std::min(threads, cores);
  const double among_ranks = std::max(0.0, beside - elsewhere) * ranks / used;
  t.seconds += among_ranks * std::min(1.0, t.computing * threads / used / t.seconds);
  t.seconds = std::max(t.seconds, input / std::max(1, job_.input_threads));
  t.input_delay = t.seconds - before;
}

// Buckets of gradients summed beside the computation that makes them, the last layer's first.
// `layers`: from `first_layer` on.
//
// A time loop that leaves too few multiprocessors for a sum is alone on its GPU. It is launched
// before the sum of what came before it, which waits for its end; the next such loop waits for that
// sum.
StepModel::Reduction StepModel::reduce_beside(const std::vector<LastPass>& layers, int first_layer,
                                              const Split& s) const {
  Work work;
  const int compute = work.add_resource(Order::listed), link = work.add_resource(Order::listed);
  const int group = s.owners();
  // Divided optimisers of whole models sum only what their rank updates, in one ring.
  const bool halved = s.shard_optimizer && !s.staged();
  const LinkModel ring = ring_link(cluster_, s);
  const GradientSums sums_of_all = gradient_sums(cluster_, s);
  const auto sum_seconds = [&](double bytes) {
    return halved ? half_ring_seconds(ring, group, bytes) : sums_of_all.seconds(bytes);
  };
  // What a bucket has to hold for latency to matter little: bucket_bytes_for()'s rule.
  const double at_once = sum_seconds(0), many = 1e12;
  const double bucket =
      group == 1
          ? 0
          : static_cast<double>(bucket_bytes_for({at_once, many / (sum_seconds(many) - at_once)}));
  const int left = cluster_.device.multiprocessors - sum_blocks(cluster_, s);
  Reduction r;
  double waiting = 0;
  std::vector<int> sums;
  size_t released = 0;  // of these
  const auto copy = [&](double bytes, std::vector<int> after) {
    const double seconds = pass_seconds(static_cast<int64_t>(bytes / gradient_bytes(1)), 2);
    r.copying += seconds;
    return work.add({compute, seconds, std::move(after)});
  };
  double all = 0;
  for (size_t l = layers.size(); l-- > 0;) {
    const HeldLoop& loop = layers[l].loop;
    if (loop.multiprocessors > left) {
      const int alone = work.add({compute, loop.seconds});
      if (released > 0) work.wait_for(alone, sums[released - 1]);
      for (; released < sums.size(); ++released) work.wait_for(sums[released], alone);
      work.add({compute, layers[l].seconds - loop.seconds});
    } else {
      work.add({compute, layers[l].seconds});
    }
    waiting += gradient_bytes(layers_.layers()[static_cast<size_t>(first_layer) + l].weights);
    if (group == 1 || (waiting < bucket && l > 0)) continue;
    const int packed = copy(waiting, {});
    const double seconds = sum_seconds(waiting);
    sums.push_back(work.add({link, seconds, {packed}}));
    r.seconds += seconds;
    all += waiting;
    waiting = 0;
  }
  if (!sums.empty()) copy(halved ? all / group : all, sums);
  const Timeline timeline = simulate(work);
  r.exposed = timeline.end - timeline.busy[static_cast<size_t>(compute)];
  return r;
}

// By stage: beside the last micro-batch's pass that makes its gradients.
std::vector<StepModel::Reduction> StepModel::reduce_stages(const std::vector<LastPass>& layers,
                                                           const std::vector<int>& first,
                                                           const Split& s) const {
  std::vector<Reduction> stages;
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    const auto begin = layers.begin() + first[i], end = layers.begin() + first[i + 1];
    stages.push_back(reduce_beside({begin, end}, first[i], s));
  }
  return stages;
}

// The last batch's backward pass beside the buckets that it completes.
StepTime StepModel::whole_models(const Split& s, const BatchShape& part) const {
  const Passes p = passes(s, part);
  const Reduction& reduction = p.reductions.front();
  StepTime t;
  t.communication = reduction.seconds;
  t.exposed = reduction.exposed;
  t.bubble = std::max(0.0, 1 - p.busy / p.computed);
  t.seconds = s.batches * p.computed + reduction.behind();
  t.computing = s.batches * p.busy + reduction.copying;
  t.messages = s.batches * p.messages;
  add_update(s, layers_.weights(), t);
  return t;
}

// Each batch drains the pipeline, the last one is summed.
StepTime StepModel::stages(const Split& s, const BatchShape& part) const {
  const Passes p = passes(s, part);
  StepTime t;
  t.bubble = 1 - p.busy / p.computed;
  t.exposed = left_of_sums(p.reductions, p.timeline.end - p.computed, s.pipeline, t);
  t.seconds = (s.batches - 1) * p.computed + p.timeline.end;
  t.computing = s.batches * p.busy;
  t.messages = s.batches * p.messages;
  add_update(s, most_weights(s, weights_of_stages(cut(s, part))), t);
  return t;
}

// Whole gradients, the memory in which they travel, and what divided optimisers need besides: the
// part's weights and gradients once more, and the parts of all ranks.
double StepModel::weight_bytes(const Split& s, int64_t weights) const {
  const int owners = s.owners();
  double bytes = 2 * gradient_bytes(weights);
  if (owners > 1) bytes += gradient_bytes(weights);
  if (owners == 1 || !s.shard_optimizer) {
    return bytes + static_cast<double>(Update::state_bytes(job_.optimizer, weights));
  }
  const int64_t part = PartLayout(weights, owners).part();
  return bytes + static_cast<double>(Update::state_bytes(job_.optimizer, part)) +
         2 * gradient_bytes(part) + gradient_bytes(part * owners);
}

double StepModel::memory(const Split& s, const BatchShape& batch) const {
  const BatchShape part = part_of(batch, s);
  BatchCapacity capacity;
  capacity.packed.sequences = static_cast<int32_t>(std::ceil(part.sequences));
  capacity.packed.frames = static_cast<int32_t>(std::ceil(part.steps()));
  capacity.packed.rows = capacity.packed.sequences * static_cast<int64_t>(std::ceil(part.frames));
  capacity.max_label_length = static_cast<int32_t>(std::ceil(part.labels));
  capacity.labels = int64_t{capacity.packed.sequences} * capacity.max_label_length;
  if (s.sequence > 1) {
    BatchCapacity whole = capacity;
    whole.packed.frames = static_cast<int32_t>(std::ceil(batch.steps()));
    whole.packed.rows = whole.packed.sequences * static_cast<int64_t>(std::ceil(batch.frames));
    capacity = shard_capacity(whole, uncut_frames(layers_.graph()), s.sequence,
                              halo_blocks(layers_.graph()));
  }
  const std::vector<int> first = cut(s, part);
  const auto weights = weights_of_stages(first);
  const Graph graph = layers_.staged(first);
  const auto batch_bytes =
      static_cast<double>(plan_batch_bytes(graph, capacity, cluster_.device.kind));
  double most = 0;
  for (int rank = 0; rank < s.pipeline; ++rank) {
    const double bytes = batch_bytes + weight_bytes(s, weights[static_cast<size_t>(rank)]);
    int stored = 1;
    if (s.staged()) {
      stored = stored_activations(s.schedule, rank, s.pipeline, s.micro_batches);
    } else if (s.sequence > 1) {
      stored = s.micro_batches;
    }
    const int stage = s.pipeline == 1 ? all_stages : rank;
    const size_t arena =
        plan_memory(graph, context_, capacity, Reuse::by_liveness, stage).arena_bytes;
    most = std::max(most, bytes + static_cast<double>(arena) * stored);
  }
  return most;
}

}  // namespace rondo::plan
