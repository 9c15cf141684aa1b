// The training loop: batches in, checkpoints, logs and a best model out.
//
// Everything that decides the weights is a pure function of (configuration, data, update number):
// the order and augmentation of utterances, dropout, the learning rate. A run that was killed and
// resumed ends with the same weights, byte for byte, as one that was not.
//
// The checkpoint directory (training.checkpoint_dir) holds
//   checkpoint-NNNNNNNNN/   generations (engine/io/checkpoint.h): model, optimiser state, position;
//                           of a pipeline, parts per stage (engine/io/stage_index.h)
//   model.safetensors       the best model so far by validation (WER, classification error, loss)
//   config.toml             the resolved configuration
//   log.jsonl               steps and validations (engine/report/jsonl.h)
//   learning_curve.svg      drawn from the log at each validation
//   log.rank-N.jsonl        what the other ranks saw, where there are several
//
// With a process group, every rank of it calls train(); docs/distributed.md tells what they share.
//
// Errors: InputError for data, configuration and files. With several ranks, what fails on one of
// them ends all: that rank throws what happened, the others PeerFailed (engine/reduce/ranks.h);
// CommError when a rank is gone or late. One thread at a time.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/config/config.h"
#include "engine/data/waveform.h"
#include "engine/session.h"
#include "kernels/devices.h"

namespace rondo {

enum class StartFrom : uint8_t {
  scratch,     // the directory must hold no checkpoint
  checkpoint,  // continue from the newest whole one
};

struct TrainerOptions {
  StartFrom start = StartFrom::scratch;
  DeviceId device = {};
  bool lockstep = false;
  const AudioReader* audio = nullptr;  // borrowed; nullptr: ready features only
  std::FILE* out = stdout;             // progress and messages (of rank 0)
  ProcessGroup* group = nullptr;       // borrowed; nullptr: a single rank
  Transport* transport = nullptr;      // borrowed; that of the group, where there is one
  std::string timeline;                // of the last update, as SVG; empty: none
  DeviceGroup* sums = nullptr;         // borrowed; of the same ranks, if they are on devices
  DeviceGroupMaker devices = {};       // for pipelines on devices; see RankGrid
  int threads = 0;                     // of this rank; 0: training.threads
  std::string version;                 // of the program: the ranks compare it
  std::string note = {};  // for the log and the terminal when training begins; empty: none
  // What the caller has read, a configuration say: the run refuses to write there.
  std::vector<std::string> files_read = {};
};

struct TrainingSummary {
  int64_t steps = 0;
  int64_t epochs = 0;
  double seconds = 0;              // of training and validation, over all resumed parts
  double best_metric = 0;          // of the best model on dev; NaN without dev data
  double input_wait_share = 0;     // of the time since this start
  bool stopped_by_signal = false;  // saved and stopped early
};

TrainingSummary train(const Config& config, const TrainerOptions& options);

}  // namespace rondo
