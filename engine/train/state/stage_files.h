// A checkpoint whose stages are written by the ranks that have them, each its own files.
//
// All ranks write into one hidden directory, which rank 0 commits when every rank has said that its
// files are complete; so they have to see one file system. Where a rank cannot write, or is gone,
// nothing is committed, and the earlier generations stay as they are.
//
// Called by all ranks. Errors as engine/reduce/ranks.h: InputError on the rank whose disk
// refuses.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/io/checkpoint.h"
#include "engine/rank_model.h"
#include "engine/reduce/ranks.h"
#include "engine/train/model/model_file.h"
#include "engine/train/state/training_state.h"

namespace rondo {

// Why the ranks cannot write into `directory` (which may have another path on each) together: empty
// if they can, otherwise one clause; the same on all ranks. Each writes a file and looks for those
// of the others.
std::string why_not_shared(const Ranks& ranks, const std::filesystem::path& directory);

// `store`: rank 0's, for the same directory.
void save_stages(const Ranks& ranks, const std::filesystem::path& directory, CheckpointStore* store,
                 const StagePart& part, const ModelDescription& description,
                 const TrainingState& state, std::optional<Score> score);

}  // namespace rondo
