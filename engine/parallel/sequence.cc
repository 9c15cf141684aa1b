#include "engine/parallel/sequence.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

SequenceRank::SequenceRank(const Graph& training, ValueId loss, const Context& context,
                           ProcessGroup& group, ShardRanks shards, Parameters& parameters)
    : training_(training),
      loss_(loss),
      context_(context),
      group_(group),
      ranks_(shards),
      parameters_(parameters) {
  shards_ = std::make_unique<SequenceShards>(training_, loss_, context_, group_, ranks_.first,
                                             ranks_.count, 0);
}

SequenceRank::~SequenceRank() = default;

void SequenceRank::wait_for_timeline(bool waits) {
  timed_ = waits;
  shards_->wait_for_timeline(waits);
}

size_t SequenceRank::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& batch : micro_batches_) bytes += batch->plans.largest().arena_bytes();
  return bytes;
}

void SequenceRank::reserve(const BatchCapacity& capacity, size_t micro_batches) {
  if (micro_batches_.size() >= micro_batches && capacity_.holds(capacity)) return;
  build(BatchCapacity::merge(capacity_, capacity), std::max(micro_batches, micro_batches_.size()));
}

void SequenceRank::build(const BatchCapacity& capacity, size_t micro_batches) {
  context_.stream->synchronize();  // the plans may be running
  micro_batches_.clear();
  capacity_ = capacity;
  shards_ = std::make_unique<SequenceShards>(training_, loss_, context_, group_, ranks_.first,
                                             ranks_.count, capacity.max_label_length);
  shards_->wait_for_timeline(timed_);
  const Graph& graph = shards_->chunk().graph;
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.phase == Phase::weight_gradient;
  });
  weight_gradients_ = static_cast<size_t>(first - graph.nodes.begin());
  for (size_t m = 0; m < micro_batches; ++m) {
    micro_batches_.push_back(std::make_unique<MicroBatch>(
        BucketedPlans(graph, context_, shards_->capacity(capacity), parameters_)));
  }
}

void SequenceRank::run(std::span<const BatchView> micro_batches, CommClock::duration timeout) {
  BatchCapacity need = capacity_;
  for (const BatchView& batch : micro_batches) need = BatchCapacity::merge(need, batch.extent());
  reserve(need, micro_batches.size());
  count_ = micro_batches.size();
  shards_->start(timeout);
  std::vector<WaveExchange> order;
  for (const auto& e : shards_->exchanges()) order.push_back(e.order());
  for (size_t m = 0; m < count_; ++m) load(m, micro_batches[m]);
  list_turns(order);
  expect_turns();
  for (const WaveStep& step : steps_) perform(step);
  run_weight_gradients();
  totals_ = {};
  losses_.assign(count_, {});
  for (size_t m = 0; m < count_; ++m) {
    shards_->add_losses(*micro_batches_[m]->pass, totals_, losses_[m]);
  }
  shards_->finish();
}

void SequenceRank::load(size_t m, const BatchView& whole) {
  MicroBatch& batch = *micro_batches_[m];
  batch.part = std::make_unique<BatchPart>(shards_->cut(whole));
  const BatchView part = batch.part->view();
  Plan& plan = batch.plans.plan_for(part.extent());
  const auto [pass, is_new] = batch.passes.try_emplace(&plan);
  if (is_new) pass->second = shards_->bind(plan);
  batch.pass = &pass->second;
  plan.load(part);
  shards_->begin(*batch.pass, *batch.part, whole, m);
}

// The steps of this shard up to the weight gradients, and which of them wait for neighbours.
void SequenceRank::list_turns(std::span<const WaveExchange> order) {
  steps_ = wave_steps(order, static_cast<int>(count_), shards_->rank(), shards_->ranks());
  std::erase_if(steps_, [](const auto& s) { return s.kind == WaveStep::Kind::weight_gradients; });
  turns_ = steps_;
  std::erase_if(turns_, [](const auto& s) { return s.kind != WaveStep::Kind::exchange; });
  turned_ = expected_ = 0;
}

// Receives are posted so many turns before they are needed.
void SequenceRank::expect_turns() {
  constexpr size_t ahead = 4;
  for (; expected_ < std::min(turned_ + ahead, turns_.size()); ++expected_) {
    const WaveStep& turn = turns_[expected_];
    const auto m = static_cast<size_t>(turn.micro_batch);
    shards_->expect(*micro_batches_[m]->part, m, static_cast<size_t>(turn.exchange),
                    turn.direction);
  }
}

void SequenceRank::perform(const WaveStep& step) {
  const auto i = static_cast<size_t>(step.exchange), m = static_cast<size_t>(step.micro_batch);
  const auto& exchanges = shards_->exchanges();
  const bool last = i == exchanges.size();
  switch (step.kind) {
    case WaveStep::Kind::nodes:
      run_nodes(m, i == 0 ? 0 : exchanges[i - 1].node + 1,
                last ? weight_gradients_ : exchanges[i].node, last ? 0 : exchanges[i].stage, i);
      break;
    case WaveStep::Kind::exchange:
      expect_turns();
      shards_->run_direction(*micro_batches_[m]->pass, i, step.direction);
      ++turned_;
      break;
    case WaveStep::Kind::pooled:
      for (size_t k = 0; k < count_; ++k) shards_->begin_meeting(*micro_batches_[k]->pass, i);
      for (size_t k = 0; k < count_; ++k) shards_->end_meeting(*micro_batches_[k]->pass, i);
      break;
    case WaveStep::Kind::weight_gradients:
      RONDO_CHECK(false, "weight gradients are computed weight by weight");
  }
}

void SequenceRank::run_nodes(size_t m, size_t begin, size_t end, int stage, size_t part) {
  if (begin == end) return;
  const auto& nodes = shards_->chunk().graph.nodes;
  const double began = shards_->seconds();
  Plan& plan = *micro_batches_[m]->pass->plan;
  plan.run_recorded(shards_->recorded_parts() + part, [&] {
    for (size_t i = begin; i < end; ++i) {
      if (!shards_->is_duplicate(nodes[i])) plan.run_node(i);
    }
  });
  shards_->post_leaving(SequenceShards::Leaving::arrived);
  shards_->note(
      nodes[begin].phase == Phase::forward ? ActionKind::forward : ActionKind::input_backward,
      stage, static_cast<int>(m), -1, began);
}

void SequenceRank::run_weight_gradients() {
  const auto& nodes = shards_->chunk().graph.nodes;
  for (size_t i = weight_gradients_; i < nodes.size(); ++i) {
    const double began = shards_->seconds();
    for (size_t m = 0; m < count_ && !shards_->is_duplicate(nodes[i]); ++m) {
      micro_batches_[m]->pass->plan->run_node(i);
    }
    shards_->post_leaving(SequenceShards::Leaving::arrived);
    shards_->note(ActionKind::weight_backward, 0, -1, -1, began);
    if (after_weight_gradient_) after_weight_gradient_(i);
  }
}

}  // namespace rondo
