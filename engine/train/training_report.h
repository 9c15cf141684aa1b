// What a training run tells: progress on the terminal, log.jsonl, TensorBoard, pictures.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/parallel/slow_ranks.h"
#include "engine/reduce/ranks.h"
#include "engine/reduce/sums.h"
#include "engine/report/jsonl.h"
#include "engine/report/progress.h"
#include "engine/report/tensorboard.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/state/kept_run.h"
#include "engine/train/state/training_state.h"
#include "engine/train/trainer_options.h"

namespace rondo {

struct SampleHypothesis {
  int64_t utterance = 0;
  std::string name, reference, hypothesis;
};

// Of a clock that only goes on.
double now_seconds();

// How an update's time was spent.
struct StepTimes {
  double waited_for_input = 0;       // seconds so far
  std::vector<double> rank_waits;    // by rank: of the next, those in which it waited for its data
  std::vector<double> rank_seconds;  // by rank: of forward and backward passes before the ranks'
                                     // last meeting; empty if they have not met since
  Sums::Times communication;         // so far
  std::vector<std::pair<const char*, double>> more;  // for the log
};

// Rank 0 reports to the terminal and to everything else; the other ranks write what they see into
// logs of their own: log.rank-1.jsonl beside log.jsonl.
class TrainingReport {
 public:
  TrainingReport(const Config& config, const TrainerOptions& options, const Ranks& ranks);

  // `model`: "on cpu with 2 threads".
  // What an earlier part of the run has written of later steps is taken out of the log.
  void begin(int64_t weights, const std::string& model, const ManifestDataset& train,
             const ManifestDataset* dev, const TrainingState& state, bool resumed);
  // Instead of begin(), where a run goes on with other ranks than before; `validation_again`: with
  // the validation that belongs to this step.
  void regrouped(const TrainingState& state, const KeptRun& kept, bool validation_again);
  // Into the log: what is laid out, in bytes, and what is resident now.
  void memory(const TrainingState& state, size_t activations);
  void problems(const ManifestDataset& data, const std::string& manifest);
  // Recordings of a lower rate than the model's, or with nothing in the upper part of theirs.
  void rates(const ManifestDataset& data, const std::string& manifest, const AudioReader* audio);
  // What no training makes the model write of these references; nothing where there is none.
  void unwritable(const Unwritable& text, const std::string& manifest);
  void step(const TrainingState& state, const StepResult& result, double rate, double epoch,
            int64_t expected_steps, const StepTimes& times);
  void validation(const TrainingState& state, const Evaluation& e, Task task, bool best,
                  std::vector<SampleHypothesis> samples);
  void test(const TrainingState& state, const Evaluation& e, Task task);
  // On the terminal; of the other ranks, and where there is none, in the log.
  void message(const std::string& text);
  void warnings(const std::vector<std::string>& texts);
  // The log's last line tells the most that was resident.
  void end(const TrainingState& state);

 private:
  void log(std::span<const LogField> fields);
  void cut_back(const LogCut& cut);
  void draw_curve();
  void show_progress(const TrainingState& state, double epoch, int64_t expected_steps, double now);
  void log_step(const TrainingState& state, const StepResult& r, double rate, double epoch,
                const StepTimes& times, double seconds);

  const Config& config_;
  const int rank_, ranks_;
  TrainingObserver* const observer_;
  std::unique_ptr<ProgressBar> bar_;  // rank 0, where there is somewhere to print
  const std::string log_path_;
  std::unique_ptr<JsonlWriter> log_;
  uint64_t logged_before_ = 0;  // bytes of the log that others wrote
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  Progress progress_;
  // What the log says, once it has been read for the first curve.
  std::optional<TrainingLog> logged_;
  // Sums since the last logged step.
  double loss_sum_ = 0, logged_at_ = 0, waited_before_ = 0;
  int64_t sequences_ = 0, frames_ = 0;
  Sums::Times communicated_before_;
  std::vector<double> rank_seconds_;
  SlowRanks slow_;
  // For the time that remains: since this start.
  double started_ = 0;
  int64_t first_step_ = -1;
};

}  // namespace rondo
