// Where a training run stands, apart from its weights: what a checkpoint's state.json holds.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "engine/config/schedule.h"
#include "engine/io/checkpoint.h"
#include "engine/session.h"
#include "engine/train/model/model_file.h"

namespace rondo {

struct TrainingState {
  int64_t step = 0;    // updates done
  uint64_t epoch = 0;  // position of the next batch
  int64_t step_in_epoch = 0;
  int64_t optimizer_steps = 0;  // updates that were not skipped
  int64_t frames = 0;
  double seconds = 0;
  double best_metric = std::numeric_limits<double>::infinity();
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t validations_without_progress = 0;
  int64_t skipped_in_a_row = 0;
  int64_t skipped = 0;
  // A signal came during the validation that belongs to this step: it is still to be done.
  bool validation_pending = false;
  PlateauState plateau;
  std::string placement;   // layers per pipeline stage, "3,4"; empty without a pipeline
  uint64_t data_hash = 0;  // hash_of() the training data; 0: not known

  std::string to_json() const;
  // Throws InputError naming `where`.
  static TrainingState from_json(std::string_view json, const std::string& where);
};

// Adds model, optimiser state and other state (`slots`: whole flat arrays) and position to
// `writer`.
void write_training_checkpoint(CheckpointWriter& writer, std::span<const TensorToWrite> weights,
                               std::span<const TensorToWrite> slots,
                               const ModelDescription& description, const TrainingState& state);

// The position alone.
TrainingState read_training_state(const Checkpoint& checkpoint);

}  // namespace rondo
