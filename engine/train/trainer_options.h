// What train() (engine/train/trainer.h) is given besides a configuration, and who hears of a run
// while it goes on.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/config/metric.h"
#include "engine/data/audio/waveform.h"
#include "engine/data/image/grey_image.h"
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
  std::string timeline, profile;   // files: the last update as SVG; some as a trace; empty: none
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
  // The program that tries kernels where a GPU is met for the first time (engine/trial/trial.h);
  // empty: none, and kernels run in the order of their tables unless the cache knows better.
  std::string trial_helper = {};
  // What the caller has read, a configuration say: the run refuses to write there.
  std::vector<std::string> files_read = {};
};

}  // namespace rondo
