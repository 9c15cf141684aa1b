// What StepModel simulates of an update: its passes, beside what they send.
#include <algorithm>

#include "engine/plan/cluster_links.h"
#include "engine/plan/step_model.h"
#include "engine/plan/wave_timeline.h"

namespace rondo::plan {
namespace {

bool is_send(const Action& a) {
  return a.kind == ActionKind::send_activation || a.kind == ActionKind::send_gradient;
}

// To each rank's neighbours in the pipeline.
struct StageLinks {
  StageLinks(const Cluster& cluster, const Split& s) {
    for (int p = 0; p < s.pipeline; ++p) {
      up.push_back(stage_link(cluster, s, p, (p + 1) % s.pipeline));
      down.push_back(stage_link(cluster, s, p, (p + s.pipeline - 1) % s.pipeline));
    }
  }
  const LinkModel& of(int rank, const Action& a) const {
    return (a.kind == ActionKind::send_activation ? up : down)[static_cast<size_t>(rank)];
  }
  std::vector<LinkModel> up, down;
};

double seconds_of_pass(const LayerSeconds& stage, ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return stage.forward;
    case ActionKind::backward:
      return stage.backward();
    case ActionKind::input_backward:
      return stage.input_backward;
    case ActionKind::weight_backward:
      return stage.weight_backward;
    default:
      return 0;
  }
}

}  // namespace

// Without stages, micro-batches follow each other on one rank, as in a pipeline of one.
StepModel::PipelinePasses StepModel::pipeline_passes(const Split& s, const BatchShape& part) const {
  const ScheduleKind kind = s.staged() ? s.schedule : ScheduleKind::gpipe;
  const auto seconds = layers_.seconds(cluster_.device, part);
  const std::vector<int> first = cut(s, part);
  std::vector<LayerSeconds> stages(first.size() - 1);
  for (size_t i = 0; i < stages.size(); ++i) {
    for (int l = first[i]; l < first[i + 1]; ++l) stages[i] += seconds[static_cast<size_t>(l)];
  }
  std::vector<double> last_pass;
  for (const LayerSeconds& l : seconds) {
    last_pass.push_back(kind == ScheduleKind::zero_bubble ? l.weight_backward : l.backward());
  }
  PipelinePasses passes;
  passes.reductions = reduce_stages(last_pass, first, s);
  const StageLinks links(cluster_, s);
  PipelineCosts costs;
  costs.latency = [&](int rank, const Action& a) { return links.of(rank, a).latency; };
  costs.transfer = [&](int rank, const Action& a) {
    const int lower = a.kind == ActionKind::send_activation ? a.stage : a.stage - 1;
    const double bytes = message_bytes(first[static_cast<size_t>(lower) + 1] - 1, part);
    return bytes / links.of(rank, a).bandwidth;
  };
  costs.compute = [&](int, const Action& a) {
    const auto stage = static_cast<size_t>(a.stage);
    return a.kind == ActionKind::reduce ? passes.reductions[stage].behind()
                                        : seconds_of_pass(stages[stage], a.kind);
  };
  passes.timeline =
      pipeline_timing(make_schedule(kind, s.pipeline, s.micro_batches, s.chunks), costs);
  for (const auto& rank : passes.timeline.ranks) {
    for (const TimedAction& a : rank) {
      if (is_send(a.action)) passes.messages += a.end - a.start;
      if (a.action.kind != ActionKind::reduce) passes.computed = std::max(passes.computed, a.end);
    }
  }
  return passes;
}

namespace {

// The time of all weight gradients of a layer's shard, for one micro-batch.
double weight_seconds(const WaveCosts& c, size_t layer) {
  const ModelLayers::Parts& p = c.layers[layer];
  return p.rest.weight_backward + std::max(1, c.directions[layer]) * p.direction.weight_backward;
}

WaveCosts shard_costs(const ModelLayers& layers, const Cluster& cluster, const Split& s,
                      const BatchShape& part) {
  WaveCosts c;
  c.shards = s.sequence;
  c.micro_batches = s.micro_batches;
  c.layers = layers.parts(cluster.device, part);
  for (const ModelLayer& layer : layers.layers()) {
    c.directions.push_back(layer.directions);
    c.state_bytes.push_back(4 * part.sequences * layer.state);
  }
  for (int k = 0; k + 1 < s.sequence; ++k) c.beside.push_back(shard_link(cluster, s, k));
  c.alpha = c.beta = layers.ctc_seconds(cluster.device, part) / 2;
  c.ctc_bytes = 4 * part.sequences * (2 * part.labels + 1);
  return c;
}

double end_of_computing(const Wave& wave, const Timeline& timeline) {
  double end = 0;
  for (size_t i = 0; i < wave.work.tasks().size(); ++i) {
    if (wave.work.tasks()[i].resource >= wave.ranks) continue;
    end = std::max(end, timeline.intervals[i].end);
  }
  return end;
}

}  // namespace

StepModel::ShardPasses StepModel::shard_passes(const Split& s, const BatchShape& part) const {
  WaveCosts c = shard_costs(layers_, cluster_, s, part);
  ShardPasses passes;
  std::vector<double> last_pass;
  if (s.staged()) {
    c.schedule = make_schedule(s.schedule, s.pipeline, s.micro_batches, s.chunks);
    c.first_layer = cut(s, part);
    // Weight gradients come last in a shard's backward pass.
    for (size_t l = 0; l < c.layers.size(); ++l) last_pass.push_back(weight_seconds(c, l));
    passes.reductions = reduce_stages(last_pass, c.first_layer, s);
    for (size_t stage = 0; stage < passes.reductions.size(); ++stage) {
      c.output_bytes.push_back(message_bytes(c.first_layer[stage + 1] - 1, part));
      c.reduce.push_back(passes.reductions[stage].behind());
    }
    StageLinks links(cluster_, s);
    c.up = std::move(links.up);
    c.down = std::move(links.down);
  } else {
    // Weight by weight, of all micro-batches: some are summed while others are computed.
    for (size_t l = 0; l < c.layers.size(); ++l) {
      last_pass.push_back(s.micro_batches * weight_seconds(c, l));
    }
    passes.reductions = {reduce_beside(last_pass, 0, s)};
  }
  passes.wave = build_wave(c);
  passes.timeline = simulate(passes.wave.work);
  passes.computed =
      s.staged() ? end_of_computing(passes.wave, passes.timeline) : passes.timeline.end;
  return passes;
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
  const BatchShape part = part_of(batch, s);
  if (s.sequence == 1) {
    const PipelinePasses passes = pipeline_passes(s, part);
    return in_a_row(passes.timeline, s, passes.computed);
  }
  const ShardPasses passes = shard_passes(s, part);
  PipelineTimeline one = wave_timeline(passes.wave, passes.timeline);
  if (!s.staged()) {
    const double end = passes.computed + passes.reductions.front().behind();
    for (auto& rank : one.ranks) rank.push_back({{ActionKind::reduce, 0}, passes.computed, end});
  }
  return in_a_row(one, s, passes.computed);
}

}  // namespace rondo::plan
