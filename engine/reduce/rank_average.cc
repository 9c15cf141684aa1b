#include "engine/reduce/rank_average.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo {

TrainedState::TrainedState(Session& session) : session_(session) {
  Parameters& parameters = session.parameters();
  const auto add = [&](const TensorView& array) {
    live_.emplace_back(array, parameters.device(), "weights that ranks average");
    copies_.emplace_back(live_.back().size());
  };
  add(parameters.weights());
  for (const auto& slot : session.optimizer().state()) add(slot.view);
  work_.resize(weights());
}

void TrainedState::fetch() {
  for (HostArray& array : live_) array.fetch(*session_.context().stream);
}

void TrainedState::store() {
  for (HostArray& array : live_) array.store(*session_.context().stream);
}

void TrainedState::copy_live() {
  for (size_t i = 0; i < live_.size(); ++i) {
    std::ranges::copy(live_[i].values(), copies_[i].begin());
  }
  steps_ = session_.optimizer().steps();
}

void TrainedState::take() {
  fetch();
  copy_live();
}

void TrainedState::put_back() {
  for (size_t i = 0; i < live_.size(); ++i) {
    std::ranges::copy(copies_[i], live_[i].values().begin());
  }
  store();
  session_.optimizer().set_steps(steps_);
}

double TrainedState::average(const Ranks& ranks, double share,
                             const std::function<void(std::span<float> difference)>& outer) {
  // Differences are small, so that little is lost by rounding them.
  fetch();
  const std::span<float> weights = live_.front().values();
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
    const std::span<float> values = live_[k].values();
    for (float& value : values) value = static_cast<float>(share * value);
    ranks.sum(values);
  }
  std::vector<double> steps(static_cast<size_t>(ranks.size()));
  steps[static_cast<size_t>(ranks.rank())] = static_cast<double>(session_.optimizer().steps());
  ranks.sum(steps);
  session_.optimizer().set_steps(
      static_cast<int64_t>(*std::max_element(steps.begin(), steps.end())));
  store();
  copy_live();
  return norm > 0 ? std::sqrt(apart / norm) : 0;
}

}  // namespace rondo
