#include "engine/sync/synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

void SessionSynchronizer::accumulate(const BatchView& batch, int, bool) { session_.enqueue(batch); }

void SessionSynchronizer::swap_average() {
  if (session_.optimizer().averages()) session_.optimizer().swap_average();
}

std::vector<Optimizer::Slot> SessionSynchronizer::gather_state() {
  return session_.optimizer().state();
}

void SessionSynchronizer::restore(const Ranks& ranks, const ReadSlot& read) {
  const std::vector<Optimizer::Slot> slots = session_.optimizer().state();
  ranks.at_first([&] {
    for (const auto& slot : slots) read(slot);
  });
  Device& device = session_.parameters().device();
  for (const auto& slot : slots) ranks.broadcast(slot.view, device);
}

void SessionSynchronizer::update_by(RankReducer& reducer, const Update& update) {
  const std::span<double> ballot = reducer.ballot();
  RONDO_CHECK(ballot.size() == update.ballot.size(), "a ballot of ", update.ballot.size());
  std::copy(update.ballot.begin(), update.ballot.end(), ballot.begin());
  if (update.failed) reducer.withdraw(session_.parameters().gradients(), Session::count_sums);
  session_.enqueue_update();
  std::copy(ballot.begin(), ballot.end(), update.ballot.begin());
}

}  // namespace rondo
