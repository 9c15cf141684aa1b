// What a training run is made of before its first step: settings and data that all ranks agree on,
// and the model and position it starts from.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/data/manifest.h"
#include "engine/io/checkpoint.h"
#include "engine/reduce/ranks.h"
#include "engine/train/model/model_file.h"
#include "engine/train/state/kept_run.h"
#include "engine/train/state/read_weights.h"
#include "engine/train/state/training_state.h"
#include "engine/train/trainer_options.h"
#include "engine/train/training_report.h"

namespace rondo {

inline constexpr const char* best_model_file = "model.safetensors";

struct TrainingSetup {
  ModelDescription description;
  std::shared_ptr<Alphabet> alphabet;  // nullptr unless the task is ctc; the data borrow it
  std::shared_ptr<ManifestDataset> train, dev;  // dev: nullptr without validation data
  TrainingState state;
  bool resumed = false;
  Config before;  // of a run that goes on: the settings that it had
  // Of the best model so far, where that is an average that an earlier part of the run ended with.
  std::optional<Score> average;
  // Of a run that goes on, rank 0 has one of these: what is on disk, or what it kept (borrowed).
  std::optional<Checkpoint> checkpoint;
  const KeptRun* kept = nullptr;
};

// The hash of all utterances (content_hash()), in their order: a run that goes on must see the
// same.
uint64_t hash_of(const ManifestDataset& data);

// Throws InputError, on the rank that differs, unless every rank runs the same version with the
// same settings. Paths, threads and other things that do not change the result may differ.
void require_same_settings(const Ranks& ranks, const Config& config, const std::string& version);

// Called by all ranks. Rank 0 alone reads in the checkpoint directory: a run that goes on reaches
// the other ranks from there, its state here, its weights in restore_training(). A run that rank 0
// kept (TrainerOptions::kept) goes on from its memory instead. `training`: config.data.train, if
// the caller has read it.
TrainingSetup set_up_training(const Ranks& ranks, const Config& config,
                              const TrainerOptions& options, TrainingReport& report,
                              std::optional<Manifest> training);

// Opens the data of a run before there are others to agree with, into options.kept: a process that
// joins a run later does not keep its ranks waiting then. What does not suit the run's alphabet,
// set_up_training() reads again. Throws InputError.
void open_data_early(const Config& config, const TrainerOptions& options);

// Weights, and the state of optimiser and synchroniser: from rank 0's checkpoint or memory, on all
// ranks; without one, as they are on rank 0, or as training.init_from says. Called by all ranks,
// once; closes the checkpoint.
void restore_training(const Ranks& ranks, const Config& config, TrainingSetup& setup,
                      RankModel& model, TrainingReport& report);

}  // namespace rondo
