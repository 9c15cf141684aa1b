// Averages of checkpoints.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "engine/config/metric.h"
#include "engine/graph/parameters.h"
#include "engine/io/score.h"
#include "engine/train/model/stored_state.h"

namespace rondo {

// The mean of the weights of the `n` generations of `directory` with the best scores after a step
// (best_of()), or of fewer, if there are fewer; computed parameter by parameter.
class CheckpointAverage {
 public:
  // `entries`, in flat arrays of `flat_size`, are those of the model. `averages`: the optimiser
  // keeps a moving average; then these are the averaged weights, as the scores are theirs. Throws
  // InputError; read() does not.
  CheckpointAverage(const std::filesystem::path& directory, int n, int64_t after_step,
                    const std::vector<Parameters::Entry>& entries, int64_t flat_size,
                    bool averages);

  size_t count() const { return checkpoints_.size(); }
  void read(const Parameters::Entry& entry, std::span<float> into) const;

 private:
  const bool averages_;
  std::vector<StoredState> checkpoints_;
};

// What a model file is worth that is such a mean, by `metric`: its rate and loss, -infinity for a
// loss that an old file does not say. Of others, and where there is none
// or it is damaged, infinity.
Score score_of_average(const std::filesystem::path& model_file, Metric metric);

}  // namespace rondo
