// What is trained, and how the ranks of a run work on it together: a session on every rank, or
// stages of pipelines.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/in_process/in_process.h"
#include "engine/parallel/rank_grid.h"
#include "engine/train/state/trained_model.h"
#include "engine/train/training_setup.h"

namespace rondo {

// Whether the settings spread the model, or its sequences, over ranks.
bool wants_pipeline(const Config& config);

// What `parallel` in the configuration asks of a pipeline.
PipelineSettings pipeline_settings(const Config& config);

struct TrainingStrategy {
  // With a pipeline; without one they are nullptr.
  std::unique_ptr<InProcessWorld> world_of_one;
  std::unique_ptr<RankGrid> grid;
  std::unique_ptr<PipelineTrainer> pipeline;
  // Without one.
  std::unique_ptr<Session> session;

  std::unique_ptr<TrainedModel> model;
  std::unique_ptr<Synchronizer> sync;
  std::string name;  // "1f1b, 2 x 2 ranks, 4 micro-batches"; empty without a pipeline
  // For the user, of each rank.
  std::vector<std::string> messages;
};

struct StrategyOptions {
  const Config& config;
  const TrainerOptions& trainer;
  const Ranks& ranks;  // all of them
  const Ranks& setup;  // the same, more patient
  size_t ballot = 0;   // the numbers that travel with updates
};

// Called by all ranks. Of `setup` the data are read, and the state of a run that goes on;
// state.placement is set. Borrows ranks' group. Throws InputError, before anything is computed, for
// what does not fit the ranks or the model.
TrainingStrategy make_strategy(const StrategyOptions& options, TrainingSetup& setup);

// Draws what every rank did in its last update, number `step`, as SVG. Called by all ranks; rank 0
// writes the file.
void draw_timeline(const Ranks& ranks, const Config& config, const TrainingStrategy& strategy,
                   int64_t step, const std::string& path);

}  // namespace rondo
