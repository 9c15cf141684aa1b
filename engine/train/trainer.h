// The training loop: batches in, checkpoints, logs and a best model out.
//
// Everything that decides the weights is a pure function of (configuration, data, update number):
// the order and augmentation of utterances, dropout, the learning rate. A run that was killed and
// resumed ends with the same weights, byte for byte, as one that was not.
//
// The checkpoint directory (training.checkpoint_dir) holds
//   checkpoint-NNNNNNNNN/   generations (engine/io/checkpoint.h): model, optimiser state, position;
//                           of a pipeline, parts per stage (engine/io/stage_index.h)
//   model.safetensors       the best model so far by validation (training.metric)
//   config.toml             the resolved configuration
//   log.jsonl               steps and validations (engine/report/jsonl.h)
//   learning_curve.svg      drawn from the log at each validation
//   log.rank-N.jsonl        what the other ranks saw, where there are several
//
// train() prints nothing unless it is given somewhere to print, installs no signal handlers, and
// leaves nothing in the process: who wants to stop it passes TrainerOptions::stop, and who wants to
// know how it goes passes an observer.
//
// With a process group, every rank of it calls train(); docs/distributed.md tells what they share.
//
// Errors: InputError for data, configuration and files. With several ranks, what fails on one of
// them ends all: that rank throws what happened, the others PeerFailed (engine/reduce/ranks.h);
// CommError when a rank is gone or late. One thread at a time.
#pragma once

#include <cstdint>

#include "engine/config/config.h"
#include "engine/train/trainer_options.h"

namespace rondo {

struct TrainingSummary {
  int64_t steps = 0;
  int64_t epochs = 0;
  double seconds = 0;                    // of training and validation, over all resumed parts
  double best_metric = 0;                // of the best model on dev; NaN without dev data
  Metric chosen_by = Metric::automatic;  // what it is
  double input_wait_share = 0;           // of the time since this start
  bool stopped_by_signal = false;        // TrainerOptions::stop said so: saved and stopped early
  bool regroups = false;                 // TrainerOptions::regroup said so: the run is not over
};

TrainingSummary train(const Config& config, const TrainerOptions& options);

}  // namespace rondo
