#include "engine/sync/step_synchronizer.h"

namespace rondo {

StepSynchronizer::StepSynchronizer(Session& session, std::unique_ptr<Sums> sums, int rank,
                                   int ranks)
    : SessionSynchronizer(session), sums_(std::move(sums)) {
  share_.own = {rank, rank + 1};
  share_.shards = ranks;
  session.set_sums(sums_.get());
}

StepSynchronizer::StepSynchronizer(Session& session, ProcessGroup* group, int shards, size_t votes)
    : SessionSynchronizer(session) {
  if (!group) alone_ = make_ring_group(world_of_one_.transport(0));
  auto sums = std::make_unique<TreeSums>(group ? *group : *alone_, shards, session.parameters(),
                                         *session.context().stream, votes);
  share_.own = sums->own();
  share_.shards = shards;
  tree_ = sums.get();
  sums_ = std::move(sums);
  session.set_sums(sums_.get());
}

size_t StepSynchronizer::lag() const {
  const bool waits =
      sums_ ? !sums_->queued() : session().context().device->kind() == DeviceKind::cpu;
  return waits ? 0 : 2;
}

void StepSynchronizer::accumulate(const BatchView& batch, int shard, bool last) {
  if (last && sums_) sums_->last_batch();
  const bool updates = last && !sums_;  // apply() follows, and nothing has to be summed before
  session().enqueue(batch, updates ? Session::Next::update : Session::Next::anything);
  if (tree_) tree_->take(shard);
}

bool StepSynchronizer::apply(const Votes& votes) {
  if (!sums_) {
    if (votes.failed) throw UpdateWithdrawn();
    session().enqueue_update();
    return true;
  }
  update_by(*sums_, votes);
  return true;
}

Sums::Times StepSynchronizer::times() const {
  Sums::Times t = sums_ ? sums_->times() : Sums::Times{};
  const double spreading = session().optimizer().spreading();
  t.communication += spreading;
  t.exposed += spreading;
  return t;
}

}  // namespace rondo
