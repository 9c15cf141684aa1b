// Where a run that goes on finds its optimiser's state: in a checkpoint, or in the memory of rank
// 0.
#pragma once

#include "engine/rank_model.h"
#include "engine/train/model/stored_state.h"
#include "engine/train/state/kept_run.h"

namespace rondo {

// The optimiser's state of all ranks becomes what rank 0 reads; nullptr on the others. Called by
// all of them. InputError when it cannot be read.
void restore_state(RankModel& model, const Ranks& ranks, const StoredState* stored);
// Of a run that rank 0 kept.
void restore_state(RankModel& model, const Ranks& ranks, const KeptRun& kept);

ReadEntry weights_of(const KeptRun& kept);

}  // namespace rondo
