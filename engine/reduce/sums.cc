#include "engine/reduce/sums.h"

#include <algorithm>

#include "engine/graph/trace.h"
#include "engine/reduce/host_array.h"
#include "kernels/base/error.h"
#include "kernels/totals/totals.h"

namespace rondo {

Sums::Sums(ProcessGroup& group, const Parameters& parameters, size_t votes)
    : group_(group),
      device_(parameters.device()),
      gradients_(parameters.gradients()),
      stream_(device_.make_stream()),
      votes_(votes) {}

void Sums::finish(LossTotals* totals, double* inverse_count) {
  sum_gradients();
  LossTotals t;
  device_.copy(stream_, &t, totals, sizeof t);
  stream_.synchronize();
  sum_numbers(&t, false);
  const double inverse = 1 / std::max(t.sequences - t.infeasible, 1.0);
  device_.copy(stream_, totals, &t, sizeof t);
  if (inverse_count) device_.copy(stream_, inverse_count, &inverse, sizeof inverse);
  stream_.synchronize();
}

void Sums::withdraw() {
  sum_gradients();
  sum_nothing();
  LossTotals none;
  sum_numbers(queued() ? nullptr : &none, true);
  throw Error("a withdrawn update took place");
}

void Sums::sum_numbers(LossTotals* totals, bool withdrawn) {
  message_.clear();
  if (totals) {
    message_ = {totals->sequences, totals->frames, totals->infeasible, totals->nonfinite,
                totals->loss};
  }
  const auto counts = static_cast<std::ptrdiff_t>(message_.size());
  message_.insert(message_.end(), votes_.begin(), votes_.end());
  message_.push_back(withdrawn ? 1 : 0);
  const TensorView view(message_.data(), DType::f64, {static_cast<int64_t>(message_.size())});
  group_.all_reduce(view, Reduction::sum).wait();
  if (totals) *totals = {message_[4], message_[0], message_[1], message_[2], message_[3]};
  std::copy(message_.begin() + counts, message_.end() - 1, votes_.begin());
  if (message_.back() != 0) throw UpdateWithdrawn();
}

GroupSums::GroupSums(ProcessGroup& group, const Parameters& parameters, size_t votes)
    : Sums(group, parameters, votes),
      array_(std::make_unique<HostArray>(parameters.gradients(), parameters.device(),
                                         "gradients of replicas")) {}
GroupSums::~GroupSums() = default;

void GroupSums::sum_gradients() {
  array_->fetch(stream());
  const std::span<float> values = array_->values();
  const TensorView view(values.data(), DType::f32, {static_cast<int64_t>(values.size())});
  const auto begin = CommClock::now();
  group().all_reduce(view, Reduction::sum).wait();
  const auto end = CommClock::now();
  if (Trace* const trace = Trace::current()) {
    trace->add(TraceSpan::Track::messages, "gradients", begin, end);
  }
  const std::chrono::duration<double> took = end - begin;
  times_.communication += took.count();
  times_.exposed += took.count();
  array_->store(stream());
}

}  // namespace rondo
