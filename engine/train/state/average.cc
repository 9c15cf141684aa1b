#include "engine/train/state/average.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/io/checkpoint.h"
#include "engine/train/model/model_file.h"
#include "engine/train/state/read_weights.h"
#include "kernels/base/error.h"

namespace rondo {

CheckpointAverage::CheckpointAverage(const std::filesystem::path& directory, int n,
                                     int64_t after_step,
                                     const std::vector<Parameters::Entry>& entries,
                                     int64_t flat_size, bool averages)
    : averages_(averages) {
  std::vector<CheckpointInfo> best = best_of(list_checkpoints(directory), after_step);
  if (best.size() > static_cast<size_t>(n)) best.resize(static_cast<size_t>(n));
  for (const CheckpointInfo& c : best) {
    StoredState& stored =
        checkpoints_.emplace_back(open_checkpoint(checkpoint_path(directory, c.generation)));
    require_weights(stored.weights(), entries);
    if (averages) stored.require("average", entries, flat_size);
  }
}

Score score_of_average(const std::filesystem::path& model_file, Metric metric) {
  std::error_code ignored;
  if (!std::filesystem::exists(model_file, ignored)) return {};
  try {
    const SafetensorsFile file(model_file);
    const ModelOrigin origin = ModelDescription::from_metadata(file.metadata(), file.name()).origin;
    if (origin.averaged > 0 && origin.chosen_by == metric) {
      // Files of before the loss was kept: what has the same rate is not better.
      const double unknown = -std::numeric_limits<double>::infinity();
      return {origin.metric, std::isfinite(origin.loss) ? origin.loss
                             : metric == Metric::loss   ? origin.metric
                                                        : unknown};
    }
  } catch (const InputError&) {  // the run goes on from its checkpoints, and writes it anew
  }
  return {};
}

void CheckpointAverage::read(const Parameters::Entry& entry, std::span<float> into) const {
  std::vector<double> sums(into.size(), 0.0);
  for (const StoredState& stored : checkpoints_) {
    if (averages_) {
      stored.read("average", entry, into);
    } else {
      weights_of(stored.weights())(entry, into);
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(into[i]);
  }
  const auto n = static_cast<double>(checkpoints_.size());
  std::transform(sums.begin(), sums.end(), into.begin(),
                 [n](double sum) { return static_cast<float>(sum / n); });
}

}  // namespace rondo
