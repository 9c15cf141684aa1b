// What is trained, on the grid of ranks that the configuration asks for.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/async/async_ranks.h"
#include "engine/rank_model.h"
#include "engine/train/training_setup.h"

namespace rondo {

// Whether the settings spread the model, or its sequences, over ranks.
bool spreads_model(const Config& config);

// What `parallel` in the configuration asks of ranks.
SplitSettings split_settings(const Config& config);

struct TrainingStrategy {
  std::unique_ptr<RankGrid> grid;
  std::unique_ptr<RankModel> model;
  std::unique_ptr<AsyncRanks> async;  // nullptr: ranks update together
  std::string name;  // "1f1b, 2 x 2 ranks, 4 micro-batches", "one rank"; for the timeline
  // For the user, of each rank.
  std::vector<std::string> messages;
};

struct StrategyOptions {
  const Config& config;
  const TrainerOptions& trainer;
  const Ranks& ranks;  // all of them
  const Ranks& setup;  // the same, more patient
  size_t ballot = 0;   // the numbers that travel with updates,
  size_t lasting = 0;  // and of them those that stay above 0 (AsyncRanks)
};

// Called by all ranks. Of `setup` the data are read, and the state of a run that goes on;
// state.placement is set. Borrows ranks' group. Throws InputError, before anything is computed, for
// what does not fit the ranks or the model.
TrainingStrategy make_strategy(const StrategyOptions& options, TrainingSetup& setup);

// Chooses the kernels that batches of so many sequences run, on a GPU that they may be new to
// (engine/trial/trial.h). A run that goes on keeps those that it had, state.kernels, where they are
// right. Called by all ranks, before the first step. Throws InputError where none of a kernel's
// variants is right, and where a world-invariant run would get other bits.
void try_kernels(const StrategyOptions& options, const RankModel& model, int64_t sequences,
                 TrainingState& state, TrainingReport& report);

// Draws what every rank did in its last update, number `step`, as SVG. Called by all ranks; rank 0
// writes the file.
void draw_timeline(const Ranks& ranks, const Config& config, const TrainingStrategy& strategy,
                   int64_t step, const std::string& path);

}  // namespace rondo
