// What a split of the ranks has to be for the data and the model, before anything is computed.
#pragma once

#include "engine/config/config.h"
#include "engine/data/dataset.h"
#include "engine/session.h"

namespace rondo {

// Throws InputError, the same on all ranks, for a world that parallel.pipeline, data and sequence
// do not divide, and for more shards than the longest sequence of the data has blocks, which is
// what subsampling makes into one frame: a cut is between blocks.
void require_split(const Config& config, int world, const Dataset& data,
                   const ModelFunction& model);

}  // namespace rondo
