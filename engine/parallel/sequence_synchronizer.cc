#include "engine/parallel/sequence_synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

SequenceSynchronizer::SequenceSynchronizer(Session& session, ProcessGroup& group, int shards,
                                           CommClock::duration timeout, size_t ballot)
    : Synchronizer(session),
      reducer_(group, ballot),
      sequence_(session.training_graph(), session.training_loss(), session.context(), group,
                {group.rank() / shards * shards, shards}, session.parameters()),
      timeout_(timeout) {
  const int replica = group.rank() / shards;
  share_.own = {replica, replica + 1};
  share_.shards = group.size() / shards;
  session.set_reducer(&reducer_);
}

void SequenceSynchronizer::accumulate(const BatchView& batch, int, bool) {
  if (batch.layout->extent.sequences == 0) return session().enqueue(batch);
  session().enqueue_computed([&] {
    sequence_.run({&batch, 1}, timeout_);
    return step_result(sequence_.totals(), sequence_.losses(0));
  });
}

bool SequenceSynchronizer::apply(const Update& update) {
  const std::span<double> ballot = reducer_.ballot();
  RONDO_CHECK(ballot.size() == update.ballot.size(), "a ballot of ", update.ballot.size());
  std::copy(update.ballot.begin(), update.ballot.end(), ballot.begin());
  if (update.failed) {
    reducer_.withdraw(session().parameters().gradients(), Session::count_sums);
  }
  session().enqueue_update();
  std::copy(ballot.begin(), ballot.end(), update.ballot.begin());
  return true;
}

}  // namespace rondo
