#include "engine/train/average.h"

#include <algorithm>

#include "engine/io/checkpoint.h"

namespace rondo {

namespace {

std::vector<CheckpointInfo> best_checkpoints(const std::filesystem::path& directory, size_t n) {
  std::vector<CheckpointInfo> all = list_checkpoints(directory);
  std::erase_if(all, [](const CheckpointInfo& c) { return !c.metric; });
  std::stable_sort(all.begin(), all.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return *a.metric < *b.metric;
  });
  if (all.size() > n) all.resize(n);
  return all;
}

// Adds the weights that validation judged to `sums`, laid out as the flat array of `entries`.
void add_weights(const Checkpoint& checkpoint, const std::vector<Parameters::Entry>& entries,
                 bool averages, std::vector<double>& sums) {
  const auto add = [&](std::span<const float> values, size_t at) {
    for (size_t i = 0; i < values.size(); ++i) sums[at + i] += static_cast<double>(values[i]);
  };
  if (averages) {
    const int64_t shape[] = {static_cast<int64_t>(sums.size())};
    const SafetensorsFile slots = checkpoint.tensors("optimizer.safetensors");
    add(slots.at("average", DType::f32, shape).as<float>(), 0);
    return;
  }
  const SafetensorsFile file = checkpoint.tensors("model.safetensors");
  for (const auto& e : entries) {
    const int64_t shape[] = {e.rows, e.cols};
    add(file.at(e.name, DType::f32, shape).as<float>(), static_cast<size_t>(e.offset));
  }
}

}  // namespace

int average_best_checkpoints(const std::filesystem::path& directory, int n,
                             const std::vector<Parameters::Entry>& entries, int64_t flat_size,
                             bool averages, std::vector<float>& mean) {
  const std::vector<CheckpointInfo> best = best_checkpoints(directory, static_cast<size_t>(n));
  if (best.empty()) return 0;
  std::vector<double> sums(static_cast<size_t>(flat_size), 0.0);
  for (const CheckpointInfo& c : best) {
    add_weights(open_checkpoint(checkpoint_path(directory, c.generation)), entries, averages, sums);
  }
  mean.resize(sums.size());
  std::transform(sums.begin(), sums.end(), mean.begin(), [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(best.size()));
  });
  return static_cast<int>(best.size());
}

}  // namespace rondo
