#include "engine/sync/synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

void SessionSynchronizer::accumulate(const BatchView& batch, int, bool) { session_.enqueue(batch); }

void SessionSynchronizer::update_by(Sums& sums, const Votes& votes) {
  const std::span<double> own = sums.votes();
  RONDO_CHECK(own.size() == votes.ballot.size(), "a ballot of ", votes.ballot.size());
  std::copy(votes.ballot.begin(), votes.ballot.end(), own.begin());
  if (votes.failed) sums.withdraw();
  session_.enqueue_update();
  std::copy(own.begin(), own.end(), votes.ballot.begin());
}

}  // namespace rondo
