// Averages of checkpoints.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "engine/graph/parameters.h"
#include "engine/train/model/stored_state.h"

namespace rondo {

// The mean of the weights of the `n` generations of `directory` with the lowest metric, of equal
// ones the newest, or of fewer, if there are fewer; computed parameter by parameter.
class CheckpointAverage {
 public:
  // `entries`, in flat arrays of `flat_size`, are those of the model. `averages`: the optimiser
  // keeps a moving average; then these are the averaged weights, as the metric is theirs. Throws
  // InputError; read() does not.
  CheckpointAverage(const std::filesystem::path& directory, int n,
                    const std::vector<Parameters::Entry>& entries, int64_t flat_size,
                    bool averages);

  size_t count() const { return checkpoints_.size(); }
  void read(const Parameters::Entry& entry, std::span<float> into) const;

 private:
  const bool averages_;
  std::vector<StoredState> checkpoints_;
};

}  // namespace rondo
