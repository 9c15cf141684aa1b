#include "engine/sync/synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

void SessionSynchronizer::accumulate(const BatchView& batch, int, bool) { session_.enqueue(batch); }

void SessionSynchronizer::update_by(RankReducer& reducer, const Votes& votes) {
  const std::span<double> ballot = reducer.ballot();
  RONDO_CHECK(ballot.size() == votes.ballot.size(), "a ballot of ", votes.ballot.size());
  std::copy(votes.ballot.begin(), votes.ballot.end(), ballot.begin());
  if (votes.failed) reducer.withdraw(session_.parameters().gradients(), Session::count_sums);
  session_.enqueue_update();
  std::copy(ballot.begin(), ballot.end(), votes.ballot.begin());
}

}  // namespace rondo
