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

}  // namespace rondo
