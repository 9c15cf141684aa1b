#include "engine/sync/step_synchronizer.h"

namespace rondo {

StepSynchronizer::StepSynchronizer(Session& session, std::unique_ptr<RankReducer> reducer, int rank,
                                   int ranks)
    : SessionSynchronizer(session), reducer_(std::move(reducer)) {
  share_.own = {rank, rank + 1};
  share_.shards = ranks;
  session.set_reducer(reducer_.get());
}

StepSynchronizer::StepSynchronizer(Session& session, ProcessGroup* group, int shards, size_t ballot)
    : SessionSynchronizer(session) {
  if (!group) alone_ = make_ring_group(world_of_one_.transport(0));
  const Context& context = session.context();
  auto reducer = std::make_unique<InvariantReducer>(group ? *group : *alone_, shards,
                                                    *context.device, *context.stream, ballot);
  share_.own = reducer->own();
  share_.shards = shards;
  invariant_ = reducer.get();
  reducer_ = std::move(reducer);
  session.set_reducer(reducer_.get());
}

size_t StepSynchronizer::lag() const {
  const bool waits =
      reducer_ ? !reducer_->enqueues() : session().context().device->kind() == DeviceKind::cpu;
  return waits ? 0 : 2;
}

void StepSynchronizer::accumulate(const BatchView& batch, int shard, bool last) {
  if (last && reducer_) reducer_->last_batch();
  const bool updates = last && !reducer_;  // apply() follows, and nothing has to be summed before
  session().enqueue(batch, updates ? Session::Next::update : Session::Next::anything);
  if (invariant_) invariant_->take(shard, session().parameters());
}

bool StepSynchronizer::apply(const Votes& votes) {
  if (!reducer_) {
    if (votes.failed) throw UpdateWithdrawn();
    session().enqueue_update();
    return true;
  }
  update_by(*reducer_, votes);
  return true;
}

RankReducer::Times StepSynchronizer::times() const {
  RankReducer::Times t = reducer_ ? reducer_->times() : RankReducer::Times{};
  const double spreading = session().optimizer().spreading();
  t.communication += spreading;
  t.exposed += spreading;
  return t;
}

}  // namespace rondo
