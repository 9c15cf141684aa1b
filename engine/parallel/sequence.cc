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
  // Whether it can be cut at all.
  SequenceShards(training_, loss_, context_, group_, ranks_, 0);
}

SequenceRank::~SequenceRank() = default;

size_t SequenceRank::arena_bytes() const {
  return micro_batches_.empty() ? 0 : micro_batches_.front()->plan->arena_bytes();
}

void SequenceRank::reserve(const BatchCapacity& capacity, size_t micro_batches) {
  if (micro_batches_.size() >= micro_batches && capacity_.holds(capacity)) return;
  build(BatchCapacity::merge(capacity_, capacity), std::max(micro_batches, micro_batches_.size()));
}

void SequenceRank::build(const BatchCapacity& capacity, size_t micro_batches) {
  micro_batches_.clear();
  capacity_ = capacity;
  shards_ = std::make_unique<SequenceShards>(training_, loss_, context_, group_, ranks_,
                                             capacity.max_label_length);
  const Graph& graph = shards_->chunk().graph;
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.phase == Phase::weight_gradient;
  });
  weight_gradients_ = static_cast<size_t>(first - graph.nodes.begin());
  for (size_t m = 0; m < micro_batches; ++m) {
    auto item = std::make_unique<MicroBatch>();
    item->plan = std::make_unique<Plan>(graph, context_, shards_->capacity(capacity), parameters_);
    item->pass = shards_->bind(*item->plan);
    micro_batches_.push_back(std::move(item));
  }
}

void SequenceRank::run(std::span<const BatchView> micro_batches, CommClock::duration timeout) {
  BatchCapacity need = capacity_;
  for (const BatchView& batch : micro_batches) need = BatchCapacity::merge(need, batch.extent());
  reserve(need, micro_batches.size());
  count_ = micro_batches.size();
  shards_->start(timeout);
  for (size_t m = 0; m < count_; ++m) {
    MicroBatch& batch = *micro_batches_[m];
    batch.part = std::make_unique<BatchPart>(shards_->cut(micro_batches[m]));
    batch.plan->load(batch.part->view());
    shards_->begin(batch.pass, *batch.part, micro_batches[m], m);
  }
  size_t done = 0;
  for (size_t i = 0; i < shards_->exchanges().size(); ++i) {
    const size_t node = shards_->exchanges()[i].node;
    for (size_t m = 0; m < count_; ++m) run_nodes(*micro_batches_[m], done, node);
    run_exchanged(i);
    done = node + 1;
  }
  for (size_t m = 0; m < count_; ++m) {
    run_nodes(*micro_batches_[m], done, weight_gradients_);
  }
  for (size_t m = 0; m < count_; ++m) {
    run_nodes(*micro_batches_[m], weight_gradients_, shards_->chunk().graph.nodes.size());
  }
  totals_ = {};
  losses_.assign(count_, {});
  for (size_t m = 0; m < count_; ++m) {
    shards_->add_losses(micro_batches_[m]->pass, totals_, losses_[m]);
  }
  shards_->finish();
}

// A node that needs neighbours, for all micro-batches.
void SequenceRank::run_exchanged(size_t index) {
  const SequenceShards::Exchange& e = shards_->exchanges()[index];
  const auto each = [&](auto action) {
    for (size_t m = 0; m < count_; ++m) action(micro_batches_[m]->pass);
  };
  if (e.pool) {
    each([&](auto& pass) { shards_->begin_pool(pass, index); });
    each([&](auto& pass) { shards_->end_pool(pass, index); });
    return;
  }
  const int early = e.directions == 1 ? 0 : e.early(shards_->rank(), shards_->ranks());
  each([&](auto& pass) { shards_->run_direction(pass, index, early); });
  if (e.directions == 2) each([&](auto& pass) { shards_->run_direction(pass, index, 1 - early); });
}

void SequenceRank::run_nodes(MicroBatch& m, size_t begin, size_t end) {
  const auto& nodes = shards_->chunk().graph.nodes;
  for (size_t i = begin; i < end; ++i) {
    if (!shards_->is_duplicate(nodes[i])) m.plan->run_node(i);
  }
}

}  // namespace rondo
