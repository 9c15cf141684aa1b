#include "engine/train/average.h"

#include <algorithm>

#include "engine/io/checkpoint.h"

namespace rondo {

int average_best_checkpoints(const std::filesystem::path& directory, int n, Session& session) {
  std::vector<CheckpointInfo> all = list_checkpoints(directory);
  std::erase_if(all, [](const CheckpointInfo& c) { return !c.metric; });
  std::stable_sort(all.begin(), all.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return *a.metric < *b.metric;
  });
  if (all.size() > static_cast<size_t>(n)) all.resize(static_cast<size_t>(n));
  if (all.empty()) return 0;
  Parameters& parameters = session.parameters();
  std::vector<std::vector<double>> sums;
  for (const auto& e : parameters.entries()) sums.emplace_back(static_cast<size_t>(e.numel()), 0.0);
  for (const CheckpointInfo& c : all) {
    const Checkpoint checkpoint = open_checkpoint(checkpoint_path(directory, c.generation));
    const SafetensorsFile file = checkpoint.tensors("model.safetensors");
    for (size_t p = 0; p < sums.size(); ++p) {
      const auto& e = parameters.entries()[p];
      const int64_t shape[] = {e.rows, e.cols};
      const auto values = file.at(e.name, DType::f32, shape).as<float>();
      for (size_t i = 0; i < values.size(); ++i) sums[p][i] += static_cast<double>(values[i]);
    }
  }
  std::vector<float> mean;
  for (size_t p = 0; p < sums.size(); ++p) {
    mean.clear();
    for (double s : sums[p])
      mean.push_back(static_cast<float>(s / static_cast<double>(all.size())));
    parameters.write(parameters.entries()[p].name, mean.data());
  }
  return static_cast<int>(all.size());
}

}  // namespace rondo
