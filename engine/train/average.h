// Averages of checkpoints.
#pragma once

#include <filesystem>

#include "engine/session.h"

namespace rondo {

// Loads into `session` the mean of the weights of the `n` generations of `directory` with the
// lowest metric; returns how many there were. Where the optimiser keeps a moving average, these are
// the averaged weights: the metric is theirs. The optimiser's state is left as it is. Throws
// InputError.
int average_best_checkpoints(const std::filesystem::path& directory, int n, Session& session);

// The same for weights that are elsewhere: the mean, laid out as a flat array of `entries`; of so
// many generations. `averages`: of the moving average that the optimiser keeps.
int average_best_checkpoints(const std::filesystem::path& directory, int n,
                             const std::vector<Parameters::Entry>& entries, int64_t flat_size,
                             bool averages, std::vector<float>& mean);

}  // namespace rondo
