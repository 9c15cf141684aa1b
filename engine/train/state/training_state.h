// Where a training run stands, apart from its weights: what a checkpoint's state.json holds.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "engine/config/learning_rate.h"
#include "engine/config/metric.h"
#include "engine/io/checkpoint.h"
#include "engine/session.h"
#include "engine/train/model/model_file.h"

namespace rondo {

// Rates of errors of one model on the validation data; infinity: not known.
struct ErrorRates {
  double cer = std::numeric_limits<double>::infinity();
  double wer = std::numeric_limits<double>::infinity();
  double error = std::numeric_limits<double>::infinity();
};

struct TrainingState {
  int64_t step = 0;    // updates done
  uint64_t epoch = 0;  // position of the next batch
  int64_t step_in_epoch = 0;
  int64_t optimizer_steps = 0;  // updates that were not skipped
  int64_t frames = 0;
  double seconds = 0;
  // What validations are compared by; automatic: the run is older than that choice.
  Metric chosen_by = Metric::automatic;
  int64_t chosen_by_since = -1;  // the step after which that was so; -1: always
  // Of the best validation so far, by that; and its rates, should another metric be asked for.
  double best_metric = std::numeric_limits<double>::infinity();
  double best_loss = std::numeric_limits<double>::infinity();
  ErrorRates best_rates;
  double progress_loss = std::numeric_limits<double>::infinity();  // of the last with progress
  int64_t validations_without_progress = 0;
  int64_t skipped_in_a_row = 0;
  int64_t skipped = 0;
  // A signal came during the validation that belongs to this step: it is still to be done.
  bool validation_pending = false;
  PlateauState plateau;
  // Updates that the whole run was expected to have; 0: not known. Where the fall of the learning
  // rate ends, if it was asked to stay where it was when more were added; 0: with the run.
  int64_t expected_steps = 0, fall_end = 0;
  std::string placement;   // layers per pipeline stage, "3,4"; empty without a pipeline
  uint64_t data_hash = 0;  // hash_of() the training data; 0: not known
  std::map<std::string, std::string> kernels;  // that a trial chose: written() of engine/trial

  Score best() const { return {best_metric, best_loss}; }

  // Takes a validation in: whether it is the best so far. One that is not is progress all the same
  // if its metric stands at its worst while the loss falls.
  bool validated(const Score& score, const ErrorRates& rates);
  // From here on another metric chooses. Whether it is known of the best model so far.
  bool choose_by(Metric metric);

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
