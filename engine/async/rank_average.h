// The mean, over ranks, of weights and of the optimiser's state.
#pragma once

#include "engine/rank_model.h"
#include "engine/reduce/ranks.h"

namespace rondo {

// Replaces the model's weights, its optimiser's state and count of steps by their means over
// ranks (of the steps: the most), the same on all ranks. Called by all of them. Returns the
// distance of this rank's weights from the mean, as a part of the mean's norm. Memory: two arrays
// of the size of the weights.
double average_over_ranks(RankModel& model, const Ranks& ranks);

}  // namespace rondo
