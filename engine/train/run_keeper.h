// What a training run leaves behind: checkpoints, the best model, and what validation says of them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/io/checkpoint.h"
#include "engine/reduce/ranks.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/state/read_weights.h"
#include "engine/train/trainer_options.h"
#include "engine/train/training_report.h"
#include "engine/train/training_setup.h"

namespace rondo {

// Members that take ranks are called by all of these, with nothing in flight; all go on when what
// is written is there, or stop with the message of the rank that could not. One thread at a time.
class RunKeeper {
 public:
  // Called by all ranks. Borrows everything else; `store` is nullptr on all ranks but the first.
  // The stages of a pipeline write their own parts of checkpoints where all ranks see the
  // directory; where they do not, rank 0 writes them all, and the report says so.
  RunKeeper(const Ranks& ranks, const Config& config, const TrainerOptions& options,
            CheckpointStore* store, TrainingSetup& setup, RankModel& model, TrainingReport& report);

  // Nothing from validate(), and false from finish() and test(): a signal asked a rank to stop
  // before all were through. All ranks get the same answer; the next run does what is left, from
  // what is saved.
  //
  // Evaluates, and keeps the model if it is the best so far; what it is worth.
  std::optional<Score> validate(const Ranks& ranks);
  // After an exception left validate(): weights are weights again, not their average. Local.
  void break_off();
  // `state` is where the run will go on.
  void save(const Ranks& ranks, const TrainingState& state, std::optional<Score> score);
  // After the last update: a model without validation; or the average of the best generations, if
  // it is at least as good as the model that was kept so far.
  bool finish(const Ranks& ranks);
  // The best model on the test data, which played no part until now.
  bool test(const Ranks& ranks);

 private:
  Evaluation evaluate_on(const Ranks& ranks, const ManifestDataset& data,
                         std::vector<SampleHypothesis>* samples);
  std::string best_model() const;
  // `score`: of the validation that chose it; NaN without one. `averaged`: of so many generations.
  void save_best(const Ranks& ranks, const Score& score, int64_t averaged = 0);
  void swap_average();
  // The mean of the best generations is kept, and `kept` its score, unless that is better. False:
  // stopped.
  bool average(const Ranks& ranks, Score& kept);
  bool is_saved(int64_t step, std::optional<Score> score) const;

  const Config& config_;
  const TrainerOptions& options_;
  CheckpointStore* const store_;
  TrainingSetup& s_;
  RankModel& model_;
  SingleModel evaluated_;
  TrainingReport& report_;
  bool stages_write_ = false;
  bool averaged_ = false;  // weights and their average are exchanged
};

}  // namespace rondo
