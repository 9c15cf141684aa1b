// What StepModel simulates of an update: its passes, beside what they send.
#include <algorithm>

#include "engine/plan/cluster_links.h"
#include "engine/plan/step_model.h"

namespace rondo::plan {
namespace {

ShardCosts shard_costs(const ModelLayers& layers, const Cluster& cluster, const BatchShape& part) {
  ShardCosts c;
  c.layers = layers.parts(cluster.device, part);
  for (const ModelLayer& layer : layers.layers()) {
    c.directions.push_back(layer.directions);
    c.state_bytes.push_back(4 * part.sequences * layer.state);
  }
  c.alpha = c.beta = layers.ctc_seconds(cluster.device, part) / 2;
  c.ctc_bytes = 4 * part.sequences * (2 * part.labels + 1);
  return c;
}

// Without stages, micro-batches follow each other on one rank, as in a pipeline of one; those of
// shards are woven.
ShardedSchedule schedule_of(const Split& s) {
  if (!s.staged() && s.sequence > 1) return woven_schedule({}, s.micro_batches, s.sequence);
  const ScheduleKind kind = s.staged() ? s.schedule : ScheduleKind::one_f_one_b;
  return {make_schedule(kind, s.pipeline, s.micro_batches), {}, s.sequence};
}

}  // namespace

// `last_pass`: by layer.
StepCosts StepModel::step_costs(const Split& s, const BatchShape& part,
                                const std::vector<int>& first,
                                std::vector<LastPass>& last_pass) const {
  StepCosts c;
  c.schedule = schedule_of(s);
  const auto stages = c.schedule.schedule.actions.size();
  if (s.sequence > 1) {
    const ShardCosts costs = shard_costs(layers_, cluster_, part);
    for (size_t i = 0; i < stages; ++i) {
      c.stages.push_back(costs.of_layers(first[i], first[i + 1]));
    }
    // Weight gradients come last in a shard's backward pass; woven, weight by weight, of all
    // micro-batches: some are summed while others are computed.
    const int at_once = c.schedule.woven ? s.micro_batches : 1;
    for (size_t l = 0; l < costs.layers.size(); ++l) {
      last_pass.push_back({at_once * costs.weights(l)});
    }
    for (int k = 0; k + 1 < s.sequence; ++k) c.beside.push_back(shard_link(cluster_, s, k));
  } else {
    const auto seconds = layers_.seconds(cluster_.device, part);
    for (size_t i = 0; i < stages; ++i) {
      LayerSeconds sum;
      for (int l = first[i]; l < first[i + 1]; ++l) sum += seconds[static_cast<size_t>(l)];
      c.stages.push_back(costs_of_passes(sum));
    }
    const bool split = s.staged() && s.schedule == ScheduleKind::zero_bubble;
    const auto loops = layers_.held_loops(cluster_.device, part);
    for (size_t l = 0; l < seconds.size(); ++l) {
      const LayerSeconds& layer = seconds[l];
      last_pass.push_back(split ? LastPass{layer.weight_backward}
                                : LastPass{layer.backward(), loops[l]});
    }
  }
  for (size_t i = 0; i < stages; ++i)
    c.output_bytes.push_back(message_bytes(first[i + 1] - 1, part));
  for (int p = 0; p + 1 < s.pipeline; ++p) {
    c.up.push_back(stage_link(cluster_, s, p, p + 1));
    c.down.push_back(stage_link(cluster_, s, p + 1, p));
  }
  return c;
}

int StepModel::held_multiprocessors(const Split& s, const BatchShape& batch) const {
  const BatchShape part = part_of(batch, s);
  std::vector<LastPass> last_pass;
  step_costs(s, part, cut(s, part), last_pass);
  int most = 0;
  for (const LastPass& l : last_pass) most = std::max(most, l.loop.multiprocessors);
  return most;
}

StepModel::Passes StepModel::passes(const Split& s, const BatchShape& part) const {
  const std::vector<int> first = cut(s, part);
  std::vector<LastPass> last_pass;
  StepCosts costs = step_costs(s, part, first, last_pass);
  Passes p;
  p.reductions = reduce_stages(last_pass, first, s);
  for (const Reduction& r : p.reductions) costs.reduce.push_back(r.behind());
  p.tasks = tasks_of(costs);
  p.timeline = simulate(p.tasks.work);
  const std::vector<Task>& tasks = p.tasks.work.tasks();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const bool computes = tasks[i].resource < p.tasks.ranks;
    if (computes) p.computed = std::max(p.computed, p.timeline.intervals[i].end);
    const bool sums = p.tasks.actions[i] && p.tasks.actions[i]->kind == ActionKind::reduce;
    if (!sums) (computes ? p.busy : p.messages) += tasks[i].seconds / p.tasks.ranks;
  }
  return p;
}

namespace {

// A batch's passes so often, each `seconds` behind the one before; sums follow the last.
PipelineTimeline in_a_row(const PipelineTimeline& one, const Split& s, double seconds) {
  PipelineTimeline all;
  all.ranks.resize(one.ranks.size());
  for (int batch = 0; batch < s.batches; ++batch) {
    for (size_t r = 0; r < one.ranks.size(); ++r) {
      for (TimedAction t : one.ranks[r]) {
        if (t.action.kind == ActionKind::reduce && batch + 1 < s.batches) continue;
        if (t.action.micro_batch >= 0) t.action.micro_batch += batch * s.micro_batches;
        t.start += batch * seconds;
        t.end += batch * seconds;
        all.ranks[r].push_back(t);
      }
    }
  }
  return all;
}

}  // namespace

PipelineTimeline StepModel::timeline(const Split& s, const BatchShape& batch) const {
  const Passes p = passes(s, part_of(batch, s));
  return in_a_row(timeline_of(p.tasks, p.timeline), s, p.computed);
}

}  // namespace rondo::plan
