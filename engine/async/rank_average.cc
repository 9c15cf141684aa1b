#include "engine/async/rank_average.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/reduce/host_array.h"

namespace rondo {
namespace {

void average(const Ranks& ranks, std::span<float> values) {
  const double share = 1.0 / ranks.size();
  for (float& value : values) value = static_cast<float>(share * value);
  ranks.sum(values);
}

double distance(std::span<const float> weights, std::span<const float> mean) {
  double apart = 0, norm = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double m = mean[i];
    apart += (weights[i] - m) * (weights[i] - m);
    norm += m * m;
  }
  return norm > 0 ? std::sqrt(apart / norm) : 0;
}

}  // namespace

double average_over_ranks(RankModel& model, const Ranks& ranks) {
  Parameters& parameters = model.parameters();
  Stream& stream = *model.context().stream;
  const auto averaged = [&](const TensorView& view) {
    HostArray array(view, parameters.device(), "weights that ranks average");
    array.fetch(stream);
    const std::vector<float> own(array.values().begin(), array.values().end());
    average(ranks, array.values());
    array.store(stream);
    return distance(own, array.values());
  };
  const double apart = averaged(parameters.weights());
  for (const auto& slot : model.optimizer().state()) averaged(slot.view);
  std::vector<double> steps(static_cast<size_t>(ranks.size()));
  steps[static_cast<size_t>(ranks.rank())] = static_cast<double>(model.optimizer().steps());
  ranks.sum(steps);
  model.optimizer().set_steps(static_cast<int64_t>(*std::ranges::max_element(steps)));
  return apart;
}

}  // namespace rondo
