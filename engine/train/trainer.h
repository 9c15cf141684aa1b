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

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/config/config.h"
#include "engine/config/metric.h"
#include "engine/data/audio/waveform.h"
#include "engine/session.h"
#include "kernels/devices.h"

namespace rondo {

struct KeptRun;  // engine/train/state/kept_run.h

enum class StartFrom : uint8_t {
  scratch,            // the directory must hold no checkpoint
  checkpoint,         // continue from the newest whole one; InputError where there is none
  checkpoint_if_any,  // the same, but from scratch where there is none
};

// Hears of a run while it goes on, in the thread that called train(), and of what its rank sees.
// What it throws ends the run as any failure of this rank does.
class TrainingObserver {
 public:
  struct Step {
    int64_t step = 0;  // updates so far
    double epoch = 0;  // with its fraction
    double loss = 0;   // mean over the update's sequences; NaN if none counted
    double learning_rate = 0;
    double gradient_norm = 0;  // before clipping
    bool skipped = false;      // the gradient was not finite: the weights are unchanged
  };
  struct Validation {
    int64_t step = 0;
    double loss = 0;                       // mean over the utterances
    double metric = 0;                     // what chooses the best model
    Metric chosen_by = Metric::automatic;  // that is what it is; not automatic
    bool best = false;                     // so far; model.safetensors is this model
  };
  virtual ~TrainingObserver() = default;
  // Lines for a person, warnings among them ("warning: ...").
  virtual void message(const std::string& text) { static_cast<void>(text); }
  virtual void stepped(const Step& step) { static_cast<void>(step); }
  virtual void validated(const Validation& validation) { static_cast<void>(validation); }
};

struct TrainerOptions {
  StartFrom start = StartFrom::scratch;
  DeviceId device = {};
  bool lockstep = false;
  const AudioReader* audio = nullptr;   // borrowed; nullptr: no recordings can be read
  const ImageReader* images = nullptr;  // borrowed; nullptr: no images can be read
  // Borrowed: progress and messages of rank 0. nullptr: nothing is printed, and messages go to the
  // log, as those of the other ranks do.
  std::FILE* out = nullptr;
  TrainingObserver* observer = nullptr;  // borrowed; nullptr: none
  // Asked between updates, and between the batches of a validation: true saves and returns. Empty:
  // the run ends by itself. With a std::stop_token: [token] { return token.stop_requested(); }.
  // Any rank may say so, and all stop.
  std::function<bool()> stop = {};
  // Whether a stop was asked for; called from a thread of the trainer's while this rank waits for
  // others, and must not throw. After a stop it gives up those that hang (CommError). Empty: it
  // waits for them until parallel.timeout_seconds.
  std::function<bool()> stop_pending = {};
  ProcessGroup* group = nullptr;   // borrowed; nullptr: a single rank
  Transport* transport = nullptr;  // borrowed; that of the group, where there is one
  std::string timeline;            // of the last update, as SVG; empty: none
  DeviceGroup* sums = nullptr;     // borrowed; of the same ranks, if they are on devices
  DeviceGroupMaker devices = {};   // for pipelines on devices; see RankGrid
  int threads = 0;                 // of this rank; 0: training.threads
  std::string version;             // of the program: the ranks compare it
  std::string note = {};           // for the log and the terminal when training begins; empty: none
  // Borrowed; for ranks that may be lost, and come, while the run goes on. train() begins with what
  // rank 0 kept there, if that holds the state of a run, and leaves its own there before it throws
  // CommError, or returns because of `regroup`. nullptr: what becomes of a rank ends the run.
  KeptRun* kept = nullptr;
  // Asked on rank 0 between updates: true, and all ranks return with their state kept, to begin
  // again with others. Empty: never.
  std::function<bool()> regroup = {};
  // What the caller has read, a configuration say: the run refuses to write there.
  std::vector<std::string> files_read = {};
};

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
