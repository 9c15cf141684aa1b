#include "engine/sync/sequence_synchronizer.h"

namespace rondo {

SequenceSynchronizer::SequenceSynchronizer(Session& session, ProcessGroup& group, int shards,
                                           int micro_batches, CommClock::duration timeout,
                                           const MakeReducer& reducer)
    : SessionSynchronizer(session),
      group_(group),
      sequence_(session.training_graph(), session.training_loss(), session.context(), group,
                {group.rank() / shards * shards, shards}, session.parameters()),
      reducer_(reducer(sequence_.graph())),
      timeout_(timeout) {
  const int replica = group.rank() / shards;
  share_.own = {replica * micro_batches, (replica + 1) * micro_batches};
  share_.shards = group.size() / shards * micro_batches;
  session.set_reducer(reducer_.get());
  sequence_.set_after_weight_gradient([this](size_t node) { reducer_->after_node(node); });
}

void SequenceSynchronizer::reserve(const BatchCapacity& capacity) {
  sequence_.reserve(capacity, static_cast<size_t>(share_.own.end - share_.own.begin));
}

// A rank that has not got its data must not leave its neighbours waiting for states.
void SequenceSynchronizer::begin_batch(std::span<const BatchView> shards, bool ready) {
  double failed = ready ? 0 : 1;
  group_.all_reduce(TensorView(&failed, DType::f64, {1}), Reduction::sum).wait();
  if (failed > 0) throw UpdateWithdrawn();
  wave_.clear();
  for (const BatchView& shard : shards) {
    if (shard.layout->extent.sequences > 0) wave_.push_back(shard);
  }
  passed_ = 0;
}

// The first micro-batch with sequences takes the others along; the sums of all are its own.
void SequenceSynchronizer::accumulate(const BatchView& batch, int, bool last) {
  if (last && passed_ == 0) reducer_->last_batch();
  if (batch.layout->extent.sequences == 0) return session().enqueue(batch);
  session().enqueue_computed([&] {
    const bool first = passed_ == 0;
    if (first) sequence_.run(wave_, timeout_);
    return step_result(first ? sequence_.totals() : LossTotals{}, sequence_.losses(passed_++));
  });
}

bool SequenceSynchronizer::apply(const Votes& votes) {
  update_by(*reducer_, votes);
  return true;
}

}  // namespace rondo
