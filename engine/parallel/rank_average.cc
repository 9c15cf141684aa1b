#include "engine/parallel/rank_average.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo {
namespace {

std::span<float> span_of(const TensorView& view) {
  return {view.as<float>(), static_cast<size_t>(view.numel())};
}

}  // namespace

TrainedState::TrainedState(Session& session) : session_(session) {
  Parameters& parameters = session.parameters();
  RONDO_CHECK(parameters.device().host_memory(), "weights must be in host memory");
  live_.push_back(span_of(parameters.weights()));
  for (const auto& slot : session.optimizer().state()) live_.push_back(span_of(slot.view));
  for (const auto& part : live_) copies_.emplace_back(part.size());
  work_.resize(live_.front().size());
}

void TrainedState::take() {
  for (size_t i = 0; i < live_.size(); ++i) {
    std::copy(live_[i].begin(), live_[i].end(), copies_[i].begin());
  }
  steps_ = session_.optimizer().steps();
}

void TrainedState::put_back() {
  for (size_t i = 0; i < live_.size(); ++i) {
    std::copy(copies_[i].begin(), copies_[i].end(), live_[i].begin());
  }
  session_.optimizer().set_steps(steps_);
}

double TrainedState::average(const Ranks& ranks, double share,
                             const std::function<void(std::span<float> difference)>& outer) {
  // Differences are small, so that little is lost by rounding them.
  const std::span<float> weights = live_.front();
  const std::vector<float>& before = copies_.front();
  for (size_t i = 0; i < weights.size(); ++i) {
    work_[i] = static_cast<float>(share * (static_cast<double>(weights[i]) - before[i]));
  }
  ranks.sum(work_);
  double apart = 0, norm = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double mean = static_cast<double>(before[i]) + work_[i];
    apart += (weights[i] - mean) * (weights[i] - mean);
    norm += mean * mean;
  }
  if (outer) outer(work_);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = before[i] + work_[i];
  // Means of values as they are: a sum of squares cannot become negative.
  for (size_t k = 1; k < live_.size(); ++k) {
    for (float& value : live_[k]) value = static_cast<float>(share * value);
    ranks.sum(live_[k]);
  }
  std::vector<double> steps(static_cast<size_t>(ranks.size()));
  steps[static_cast<size_t>(ranks.rank())] = static_cast<double>(session_.optimizer().steps());
  ranks.sum(steps);
  session_.optimizer().set_steps(
      static_cast<int64_t>(*std::max_element(steps.begin(), steps.end())));
  take();
  return norm > 0 ? std::sqrt(apart / norm) : 0;
}

}  // namespace rondo
