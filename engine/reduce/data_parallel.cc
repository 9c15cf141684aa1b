#include "engine/reduce/data_parallel.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

double seconds_between(CommClock::time_point from, CommClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void RankReducer::reduce(TensorView gradients, std::span<double> counts) {
  sum_gradients(gradients);
  sum_counts(counts, false);
}

void RankReducer::withdraw(TensorView gradients, size_t counts) {
  sum_gradients(gradients);
  sum_nothing();
  std::vector<double> none(enqueues() ? 0 : counts);
  sum_counts(none, true);
  throw Error("a withdrawn update took place");
}

void RankReducer::sum_counts(std::span<double> counts, bool withdrawn) {
  message_.assign(counts.begin(), counts.end());
  message_.insert(message_.end(), ballot_.begin(), ballot_.end());
  message_.push_back(withdrawn ? 1 : 0);
  const TensorView view(message_.data(), DType::f64, {static_cast<int64_t>(message_.size())});
  group_.all_reduce(view, Reduction::sum).wait();
  const auto middle = message_.begin() + static_cast<std::ptrdiff_t>(counts.size());
  std::copy(message_.begin(), middle, counts.begin());
  std::copy(middle, message_.end() - 1, ballot_.begin());
  if (message_.back() != 0) throw UpdateWithdrawn();
}

void GroupReducer::sum_gradients(TensorView gradients) {
  const auto begin = CommClock::now();
  group().all_reduce(gradients, Reduction::sum).wait();
  const double seconds = seconds_between(begin, CommClock::now());
  times_.communication += seconds;
  times_.exposed += seconds;
}

void broadcast_weights(ProcessGroup& group, Parameters& parameters) {
  RONDO_CHECK(parameters.device().host_memory(), "weights must be in host memory");
  group.broadcast(parameters.weights(), 0).wait();
}

}  // namespace rondo
