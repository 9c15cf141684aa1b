// What a training run is made of before its first step: settings and data that all ranks agree on,
// and the model and position it starts from.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/io/checkpoint.h"
#include "engine/parallel/ranks.h"
#include "engine/parallel/synchronizer.h"
#include "engine/train/model_file.h"
#include "engine/train/trainer.h"
#include "engine/train/training_report.h"
#include "engine/train/training_state.h"

namespace rondo {

inline constexpr const char* best_model_file = "model.safetensors";

struct TrainingSetup {
  ModelDescription description;
  std::unique_ptr<Alphabet> alphabet;  // nullptr unless the task is ctc; the data borrow it
  std::unique_ptr<ManifestDataset> train, dev;  // dev: nullptr without validation data
  std::unique_ptr<Session> session;
  TrainingState state;
  bool resumed = false;
  std::optional<Checkpoint> checkpoint;  // rank 0's, of a run that goes on
};

// Of the training data: a run that goes on must see the same.
uint64_t hash_of(const ManifestDataset& data);

// The same without session and state: for models that are spread over ranks, which take weights and
// state from `checkpoint`. Data and alphabet are compared.
TrainingSetup set_up_data(const Ranks& ranks, const Config& config, const TrainerOptions& options,
                          TrainingReport& report);

// Throws InputError, on rank 0, unless the run in `state` was trained on these data.
void require_same_data(const Ranks& ranks, const Config& config, const TrainingState& state,
                       const ManifestDataset& data);

// Throws InputError, on the rank that differs, unless every rank runs the same version with the
// same settings. Paths, threads and other things that do not change the result may differ.
void require_same_settings(const Ranks& ranks, const Config& config, const std::string& version);

// Called by all ranks. Rank 0 alone reads and writes in the checkpoint directory: a run that goes
// on reaches the other ranks from there. Starting weights are rank 0's; the rest is for
// restore_training().
TrainingSetup set_up_training(const Ranks& ranks, const Config& config,
                              const TrainerOptions& options, TrainingReport& report);

// The state of optimiser and synchroniser, from rank 0's checkpoint, on all ranks; without one, as
// it is on rank 0. With several ranks it must be in host memory. Called by all ranks, once; closes
// the checkpoint.
void restore_training(const Ranks& ranks, TrainingSetup& setup, Synchronizer& synchronizer);

}  // namespace rondo
