// The files that a training run writes at paths of its user's choice, or may meet in its directory,
// and those it reads: none of the first may be one of the second.
//
// Thread safety: free functions. Errors: InputError that names the setting and the file.
#pragma once

#include "engine/config/config.h"
#include "engine/data/dataset.h"
#include "engine/train/trainer_options.h"

namespace rondo {

// The log of a rank: training.log, or log.jsonl in the checkpoint directory; ranks after the first
// have names of their own beside it. Throws if there is a file that does not begin like a log,
// which would only grow by it.
std::string log_path(const Config& config, int rank);

// Throws unless the settings name data to train on.
void require_training_data(const Config& config, const TrainerOptions& options);

// Throws where a run is to go on and its directory holds no checkpoint. Before the directory is
// made: it may be the name that is wrong.
void require_checkpoint(const Config& config, const TrainerOptions& options);

// Before anything is written: log, timeline, profile, best model and settings are neither each
// other nor manifests, configuration or the model of training.init_from.
void require_files_apart(const Config& config, const TrainerOptions& options);

// Nor is the timeline, or the profile, one of the recordings or features of the data. (The log
// begins like one, and the files of a run have names of their own.)
void require_apart_from_data(const TrainerOptions& options, const ManifestDataset& data);

// Removes what runs that were killed left half-written beside the files of this one. Only while the
// checkpoint directory is locked. Returns a warning for each that stays.
std::vector<std::string> remove_leftovers(const Config& config);

}  // namespace rondo
