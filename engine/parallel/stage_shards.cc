#include "engine/parallel/stage_shards.h"

#include "kernels/base/error.h"

namespace rondo {

StageShards::StageShards(const Graph& training, ValueId loss, const Context& context,
                         ProcessGroup& shards, const PipelineSchedule& schedule, int rank,
                         int32_t max_label_length)
    : shards_(training, loss, context, shards, 0, shards.size(), max_label_length),
      last_stage_(schedule.stages - 1) {
  list_exchanges(schedule.stages);
  steps_ = shard_steps(schedule, exchanges_, rank, shards_.rank(), shards_.ranks());
}

void StageShards::list_exchanges(int stages) {
  exchanges_.resize(static_cast<size_t>(stages));
  places_.resize(exchanges_.size());
  for (size_t i = 0; i < shards_.exchanges().size(); ++i) {
    const SequenceShards::Exchange& e = shards_.exchanges()[i];
    const auto stage = static_cast<size_t>(graph().nodes[e.node].stage);
    exchanges_.at(stage).push_back(e.order());
    places_[stage].push_back(i);
  }
}

void StageShards::run(PipelineRank& pipeline, std::span<const BatchView> micro_batches,
                      PipelineHooks hooks, CommClock::duration timeout) {
  passes_.clear();
  parts_.clear();
  parts_.reserve(micro_batches.size());
  std::vector<BatchView> views;
  for (const BatchView& batch : micro_batches) {
    views.push_back(parts_.emplace_back(shards_.cut(batch)).view());
  }
  hooks.loaded = [&](int stage, int m, Plan& plan) {
    const auto at = static_cast<size_t>(m);
    SequenceShards::Pass& pass = passes_[{stage, m}] = shards_.bind(plan, stage);
    shards_.begin(pass, parts_[at], micro_batches[at], at);
  };
  hooks.run_nodes = [this](const Action& a, const NodeDone& done) { compute(a, done); };
  // CTC's comes with beta, from the right.
  hooks.loss_in_backward = shards_.chunk().ctc_grad != no_node;
  next_ = 0;
  shards_.start(timeout);
  pipeline.run(views, hooks);
  shards_.finish();
}

void StageShards::add_losses(int micro_batch, LossTotals& totals, std::vector<double>& losses) {
  shards_.add_losses(passes_.at({last_stage_, micro_batch}), totals, losses);
}

bool StageShards::empty(int micro_batch) const {
  return parts_[static_cast<size_t>(micro_batch)].layout().extent.sequences == 0;
}

// The steps up to the end of an action. The pipeline's own have been carried out, and micro-batches
// without sequences are passed over.
void StageShards::compute(const Action& action, const NodeDone& done) {
  bool begun = false;
  for (; next_ < steps_.size(); ++next_) {
    const ShardStep& step = steps_[next_];
    const bool own = step.kind != ShardStep::Kind::action && step.kind != ShardStep::Kind::expect;
    if (begun && !(own && step.action == action)) break;
    if (step.kind == ShardStep::Kind::action || empty(step.action.micro_batch)) continue;
    if (own) {
      RONDO_CHECK(step.action == action, describe(action), " comes before ", describe(step));
      begun = true;
    }
    perform(step, done);
  }
  RONDO_CHECK(begun, describe(action), " is not in the list");
  shards_.post_leaving(SequenceShards::Leaving::all);  // the pipeline waits for other ranks
}

void StageShards::perform(const ShardStep& step, const NodeDone& done) {
  switch (step.kind) {
    case ShardStep::Kind::expect: {
      const auto m = static_cast<size_t>(step.action.micro_batch);
      return shards_.expect(parts_[m], m, exchange_of(step), step.direction);
    }
    case ShardStep::Kind::nodes:
      return run_nodes(step, done);
    case ShardStep::Kind::exchange:
      return exchange(step, done);
    case ShardStep::Kind::action:
      RONDO_CHECK(false, describe(step), " is the pipeline's");
  }
}

void StageShards::run_nodes(const ShardStep& step, const NodeDone& done) {
  const Action& a = step.action;
  const auto& nodes = graph().nodes;
  Plan& plan = *passes_.at({a.stage, a.micro_batch}).plan;
  // From behind the exchange before, if it is of this action.
  size_t begin = 0, end = nodes.size();
  const auto& places = places_[static_cast<size_t>(a.stage)];
  const size_t until = step.exchange < 0 ? places.size() : static_cast<size_t>(step.exchange);
  if (until < places.size()) end = shards_.exchanges()[places[until]].node;
  for (size_t i = until; i > 0; --i) {
    const size_t node = shards_.exchanges()[places[i - 1]].node;
    if (!runs(a.kind, nodes[node].phase)) continue;
    begin = node + 1;
    break;
  }
  const auto own = [&](size_t i) {
    return nodes[i].stage == a.stage && runs(a.kind, nodes[i].phase);
  };
  while (begin < end && !own(begin)) ++begin;
  const auto run = [&] {
    for (size_t i = begin; i < end; ++i) {
      if (!own(i)) continue;
      if (!shards_.is_duplicate(nodes[i])) plan.run_node(i);
      if (done) done(i);
    }
  };
  if (done || begin == end) {
    run();
  } else {
    const size_t of_kind = static_cast<size_t>(a.kind) * (places.size() + 1) + until;
    plan.run_recorded(shards_.recorded_parts() + of_kind, run);
  }
  shards_.post_leaving(SequenceShards::Leaving::arrived);
}

void StageShards::exchange(const ShardStep& step, const NodeDone& done) {
  const size_t index = exchange_of(step);
  const SequenceShards::Exchange& e = shards_.exchanges()[index];
  SequenceShards::Pass& pass = passes_.at({step.action.stage, step.action.micro_batch});
  if (e.meets()) {
    shards_.begin_meeting(pass, index);
    shards_.end_meeting(pass, index);
    if (done) done(e.node);
    return;
  }
  shards_.run_direction(pass, index, step.direction);
  const bool last = e.directions == 1 || step.direction != e.early(shards_.rank(), shards_.ranks());
  if (last && done) done(e.node);
}

}  // namespace rondo
