// One update of one split for one shape of batches, and its memory.
#include <algorithm>
#include <cmath>

#include "engine/cut/sequence_cut.h"
#include "engine/graph/batch_memory.h"
#include "engine/graph/memory_layout.h"
#include "engine/part_layout.h"
#include "engine/plan/cluster_links.h"
#include "engine/plan/split.h"
#include "engine/reduce/bucket_sums.h"

namespace rondo::plan {
namespace {

double bytes_of(int64_t weights) { return 4.0 * static_cast<double>(weights); }

bool is_divided(const Split& s) { return s.divide_optimizer && s.owners() > 1; }

// Without stages, micro-batches follow each other on one rank, as in a pipeline of one; those of
// shards are woven.
ShardedSchedule schedule_of(const Split& s) {
  if (!s.staged() && s.sequence > 1) return woven_schedule({}, s.micro_batches, s.sequence);
  const ScheduleKind kind = s.staged() ? s.schedule : ScheduleKind::one_f_one_b;
  return {make_schedule(kind, s.pipeline, s.micro_batches), {}, s.sequence};
}

// Counts, votes, the gradient's norm: a few numbers that all ranks sum one after the other.
double small_sums(const Split& s, const Cluster& cluster) {
  const int sums = s.staged() ? 4 : s.sequence > 1 ? 3 : s.divide_optimizer ? 2 : 1;
  const double bytes = 8.0 * (10 + s.devices());
  return sums * doubling_seconds(cluster, s.devices(), bytes);
}

}  // namespace

Planner::Cut Planner::cut(const Split& s, const BatchShape& batch) const {
  Cut c;
  c.part = batch;
  c.part.sequences /= s.data * s.micro_batches * s.batches;
  c.part.frames /= s.sequence;
  c.part.longest /= s.sequence;
  c.costs = model_.costs(cluster_.device, c.part, s.sequence > 1);
  c.counts = model_.cut(c.costs, s.pipeline);
  c.first = model_.first_blocks(c.counts);
  for (size_t i = 0; i + 1 < c.first.size(); ++i) {
    int64_t& sum = c.weights.emplace_back();
    for (int b = c.first[i]; b < c.first[i + 1]; ++b) {
      sum += model_.blocks()[static_cast<size_t>(b)].weights;
    }
  }
  return c;
}

StepCosts Planner::step_costs(const Split& s, const Cut& cut) const {
  StepCosts c;
  c.schedule = schedule_of(s);
  const bool halved = job_.wire == DType::bf16 && job_.compute == DType::f32;
  for (int p = 0; p < s.pipeline; ++p) {
    const int begin = cut.first[static_cast<size_t>(p)],
              end = cut.first[static_cast<size_t>(p) + 1];
    c.stages.push_back(costs_of_stage(cut.costs, begin, end, s.sequence > 1));
    const Block& last = model_.blocks()[static_cast<size_t>(end) - 1];
    const auto factor = static_cast<double>(model_.graph().total_factor(last.output_level));
    c.output_bytes.push_back(cut.part.sequences * std::ceil(cut.part.frames / factor) *
                             last.output_row * (halved ? 0.5 : 1));
    if (p + 1 == s.pipeline) break;
    c.up.push_back(stage_link(cluster_, s, p, p + 1));
    c.down.push_back(stage_link(cluster_, s, p + 1, p));
  }
  for (int k = 0; k + 1 < s.sequence; ++k) c.beside.push_back(shard_link(cluster_, s, k));
  return c;
}

// Buckets of gradients summed beside the computation that makes them, the last block's first.
// `seconds`: of the blocks from `first_block` on.
Planner::Reduction Planner::reduce_beside(const std::vector<double>& seconds, int first_block,
                                          const Split& s) const {
  const int group = s.owners();
  Reduction r;
  if (group == 1) return r;
  // Divided optimisers of whole models sum only what their rank updates, in one ring.
  const bool halved = s.divide_optimizer && s.devices() == s.data;
  const LinkModel ring = ring_link(cluster_, s);
  const GradientSums sums_of_all = gradient_sums(cluster_, s);
  const auto sum_seconds = [&](double bytes) {
    return halved ? half_ring_seconds(ring, group, bytes) : sums_of_all.seconds(bytes);
  };
  // What a bucket has to hold for latency to matter little: bucket_bytes_for()'s rule.
  const double at_once = sum_seconds(0), many = 1e12;
  const auto bucket =
      static_cast<double>(bucket_bytes_for({at_once, many / (sum_seconds(many) - at_once)}));
  double computed = 0, summed = 0;
  int64_t waiting = 0, all = 0;
  for (size_t b = seconds.size(); b-- > 0;) {
    computed += seconds[b];
    waiting += model_.blocks()[static_cast<size_t>(first_block) + b].weights;
    if (bytes_of(waiting) < bucket && b > 0) continue;
    const double copy = cluster_.device.pass_seconds(waiting, 2);
    const double sum = sum_seconds(bytes_of(waiting));
    r.copying += copy;
    computed += copy;
    summed = std::max(summed, computed) + sum;
    r.seconds += sum;
    all += waiting;
    waiting = 0;
  }
  r.exposed = std::max(0.0, summed - computed);
  r.copying += cluster_.device.pass_seconds(halved ? all / group : all, 2);
  return r;
}

// By stage: beside the last micro-batch's pass that makes its gradients. Weight gradients come last
// in a shard's backward pass, or are computed apart; woven, weight by weight, of all micro-batches:
// some are summed while others are computed.
std::vector<Planner::Reduction> Planner::reductions(const Split& s, const Cut& cut) const {
  const bool woven = s.sequence > 1 && !s.staged();
  const bool apart = s.sequence > 1 || (s.staged() && s.schedule == ScheduleKind::zero_bubble);
  std::vector<double> seconds;
  for (const BlockCost& b : cut.costs) {
    const PassSeconds whole = b.whole();
    seconds.push_back((woven ? s.micro_batches : 1) * whole.weight_backward +
                      (apart ? 0 : whole.input_backward));
  }
  std::vector<Reduction> stages;
  for (size_t i = 0; i + 1 < cut.first.size(); ++i) {
    stages.push_back(reduce_beside(
        {seconds.begin() + cut.first[i], seconds.begin() + cut.first[i + 1]}, cut.first[i], s));
  }
  return stages;
}

// Each batch drains the pipeline; of the last one the gradients are summed, beside its passes.
Prediction Planner::timed(const Split& s, const BatchShape& batch, const Cut& c,
                          StepTimes* passes) const {
  StepCosts costs = step_costs(s, c);
  Prediction p;
  double copying = 0;
  for (const Reduction& r : reductions(s, c)) {
    costs.reduce.push_back(r.exposed + r.copying);
    p.communication += r.seconds / s.pipeline;
    copying = std::max(copying, r.copying);
  }
  const StepTimes t = simulate(costs);
  p.bubble = std::max(0.0, 1 - t.busy / t.computed);
  p.exposed = std::clamp(t.end - t.computed - copying, 0.0, p.communication);
  p.seconds = (s.batches - 1) * t.computed + t.end;
  p.computing = s.batches * t.busy + copying;
  add_update(s, *std::max_element(c.weights.begin(), c.weights.end()), p);
  share_cores(s, batch, s.batches * t.messages, p);
  if (passes) *passes = t;
  return p;
}

// An update follows the gradients' sums. Where the optimiser is divided, a rank copies the
// gradients of its part out of the memory in which they travel and squares and steps these; its
// weights are copied there, gathered, and those of all ranks copied out.
void Planner::add_update(const Split& s, int64_t weights, Prediction& p) const {
  const DeviceModel& device = cluster_.device;
  double update = device.pass_seconds(weights, update_arrays(job_.optimizer));
  if (is_divided(s)) {
    const int clear = 1, squares = 1, copies = 4, unpack = 2;
    const int64_t part = PartLayout(weights, s.owners()).part();
    update = device.pass_seconds(weights, clear + unpack) +
             device.pass_seconds(part, copies + squares + step_arrays(job_.optimizer));
    const double gather =
        half_ring_seconds(ring_link(cluster_, s), s.owners(), bytes_of(part * s.owners()));
    p.communication += gather;
    p.exposed += gather;
    p.seconds += gather;
  }
  p.computing += update;
  p.seconds += update + small_sums(s, cluster_);
}

// Ranks, the threads that prepare their batches and those that serve their messages on the cores of
// one machine.
void Planner::share_cores(const Split& s, const BatchShape& batch, double messages,
                          Prediction& p) const {
  const DeviceModel& device = cluster_.device;
  if (device.cores == 0) return;
  const auto ranks = static_cast<double>(std::min(s.devices(), cluster_.per_node));
  const auto cores = static_cast<double>(device.cores), threads = ranks * device.threads;
  p.seconds = std::max(p.seconds, p.computing * threads / cores);
  const double before = p.seconds;
  // Every rank prepares the batch of its replica. What it sends, sums and receives while it
  // computes is the work of other threads of its own.
  const double input = batch.rows() / s.data * job_.input_seconds_per_frame;
  const double beside = input + messages + std::max(0.0, p.communication - p.exposed);
  const double elsewhere = std::max(0.0, cores - threads) * p.seconds / ranks;
  const double used = std::min(threads, cores);
  const double among_ranks = std::max(0.0, beside - elsewhere) * ranks / used;
  p.seconds += among_ranks * std::min(1.0, p.computing * threads / used / p.seconds);
  p.seconds = std::max(p.seconds, input / std::max(1, job_.input_threads));
  p.input_delay = p.seconds - before;
}

PipelineTimeline Planner::timeline(const Split& s) const {
  const double mean = predict(s).seconds;
  const auto distance = [&](const WeightedShape& b) {
    return std::abs(timed(s, b.shape, cut(s, b.shape)).seconds - mean);
  };
  const auto nearest =
      std::min_element(job_.batches.begin(), job_.batches.end(),
                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  StepTimes one;
  timed(s, nearest->shape, cut(s, nearest->shape), &one);
  PipelineTimeline all;
  for (const std::vector<TimedAction>& rank : one.timeline.ranks) {
    std::vector<TimedAction>& drawn = all.ranks.emplace_back();
    for (int i = 0; i < s.batches; ++i) {
      for (TimedAction t : rank) {
        if (t.action.kind == ActionKind::reduce && i + 1 < s.batches) continue;
        if (t.action.micro_batch >= 0) t.action.micro_batch += i * s.micro_batches;
        t.start += i * one.computed;
        t.end += i * one.computed;
        drawn.push_back(t);
      }
    }
  }
  return all;
}

// Whole gradients, the memory in which they travel, and what divided optimisers need besides: the
// part's weights and gradients once more, and the parts of all ranks.
double Planner::weight_bytes(const Split& s, int64_t weights) const {
  const auto state = [&](int64_t of) {
    return static_cast<double>(Update::state_bytes(job_.optimizer, of));
  };
  const double bytes = bytes_of((s.owners() > 1 ? 3 : 2) * weights);
  if (!is_divided(s)) return bytes + state(weights);
  const int64_t part = PartLayout(weights, s.owners()).part();
  return bytes + state(part) + bytes_of((2 + s.owners()) * part);
}

double Planner::memory(const Split& s, const BatchShape& batch, const Cut& c) const {
  BatchCapacity capacity;
  capacity.packed.sequences = static_cast<int32_t>(std::ceil(c.part.sequences));
  capacity.packed.frames = static_cast<int32_t>(std::ceil(c.part.steps()));
  capacity.packed.rows = capacity.packed.sequences * static_cast<int64_t>(std::ceil(c.part.frames));
  capacity.max_label_length = static_cast<int32_t>(std::ceil(c.part.labels));
  capacity.labels = int64_t{capacity.packed.sequences} * capacity.max_label_length;
  if (s.sequence > 1) {
    BatchCapacity whole = capacity;
    whole.packed.frames = static_cast<int32_t>(std::ceil(batch.steps()));
    whole.packed.rows = whole.packed.sequences * static_cast<int64_t>(std::ceil(batch.frames));
    capacity = shard_capacity(whole, uncut_frames(model_.graph()), s.sequence,
                              halo_blocks(model_.graph()));
  }
  const Graph graph = model_.staged(c.counts);
  const auto batch_bytes =
      static_cast<double>(predict_batch_bytes(graph, capacity, cluster_.device.kind));
  double most = 0;
  for (int rank = 0; rank < s.pipeline; ++rank) {
    const double bytes = batch_bytes + weight_bytes(s, c.weights[static_cast<size_t>(rank)]);
    int stored = 1;
    if (s.staged()) {
      stored = stored_activations(s.schedule, rank, s.pipeline, s.micro_batches);
    } else if (s.sequence > 1) {
      stored = s.micro_batches;
    }
    const int stage = s.pipeline == 1 ? all_stages : rank;
    const size_t arena =
        lay_out_memory(graph, context_, capacity, Reuse::by_liveness, stage).arena_bytes;
    most = std::max(most, bytes + static_cast<double>(arena) * stored);
  }
  return most;
}

}  // namespace rondo::plan
