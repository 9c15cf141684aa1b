#include "engine/train/state/average.h"

#include <algorithm>

#include "engine/io/checkpoint.h"
#include "engine/train/state/trained_model.h"

namespace rondo {

namespace {

std::vector<CheckpointInfo> best_checkpoints(const std::filesystem::path& directory, size_t n) {
  std::vector<CheckpointInfo> all = list_checkpoints(directory);
  std::erase_if(all, [](const CheckpointInfo& c) { return !c.metric; });
  // Of equals the newest, as a store keeps them: older ones may be left of a run that was killed.
  std::sort(all.begin(), all.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return *a.metric != *b.metric ? *a.metric < *b.metric : a.generation > b.generation;
  });
  if (all.size() > n) all.resize(n);
  return all;
}

}  // namespace

CheckpointAverage::CheckpointAverage(const std::filesystem::path& directory, int n,
                                     const std::vector<Parameters::Entry>& entries,
                                     int64_t flat_size, bool averages)
    : averages_(averages) {
  for (const CheckpointInfo& c : best_checkpoints(directory, static_cast<size_t>(n))) {
    StoredState& stored =
        checkpoints_.emplace_back(open_checkpoint(checkpoint_path(directory, c.generation)));
    require_weights(stored.weights(), entries);
    if (averages) stored.require("average", entries, flat_size);
  }
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
