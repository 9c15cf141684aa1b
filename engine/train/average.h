// Averages of checkpoints.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/graph/parameters.h"

namespace rondo {

// The mean of the weights of the `n` generations of `directory` with the lowest metric, laid out as
// a flat array of `entries`; returns how many there were. `averages`: the optimiser keeps a moving
// average; then these are the averaged weights, as the metric is theirs. Throws InputError.
int average_best_checkpoints(const std::filesystem::path& directory, int n,
                             const std::vector<Parameters::Entry>& entries, int64_t flat_size,
                             bool averages, std::vector<float>& mean);

}  // namespace rondo
