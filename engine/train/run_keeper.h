// What a training run leaves behind: checkpoints, the best model, and what validation says of them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/io/checkpoint.h"
#include "engine/parallel/ranks.h"
#include "engine/parallel/synchronizer.h"
#include "engine/train/evaluation.h"
#include "engine/train/trained_model.h"
#include "engine/train/trainer.h"
#include "engine/train/training_report.h"
#include "engine/train/training_setup.h"

namespace rondo {

// Members that take ranks are called by all of these, with nothing in flight; rank 0
// writes, and all go on when it has, or stop with its message. One thread at a time.
class RunKeeper {
 public:
  // Borrows everything; `store` is nullptr on all ranks but the first.
  RunKeeper(const Config& config, const TrainerOptions& options, CheckpointStore* store,
            TrainingSetup& setup, TrainedModel& model, Synchronizer& synchronizer,
            TrainingReport& report)
      : config_(config),
        options_(options),
        store_(store),
        s_(setup),
        model_(model),
        sync_(synchronizer),
        report_(report) {}

  // Nothing from validate(), and false from finish() and test(): a signal asked a rank to stop
  // before all were through. All ranks get the same answer; the next run does what is left, from
  // what is saved.
  //
  // Evaluates, and keeps the model if it is the best so far; its metric.
  std::optional<double> validate(const Ranks& ranks);
  // `state` is where the run will go on.
  void save(const Ranks& ranks, const TrainingState& state, std::optional<double> metric);
  // After the last update: a model without validation; or the average of the best generations, if
  // it is at least as good as the best one.
  bool finish(const Ranks& ranks);
  // The best model on the test data, which played no part until now.
  bool test(const Ranks& ranks);

 private:
  Evaluation evaluate_on(const Ranks& ranks, const ManifestDataset& data,
                         std::vector<SampleHypothesis>* samples);
  std::string best_model() const;
  void save_best(const Ranks& ranks);

  const Config& config_;
  const TrainerOptions& options_;
  CheckpointStore* const store_;
  TrainingSetup& s_;
  TrainedModel& model_;
  Synchronizer& sync_;
  TrainingReport& report_;
};

}  // namespace rondo
