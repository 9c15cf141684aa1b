// Measures this machine's CPU for the planner: times the nodes of training steps.
#pragma once

#include <functional>
#include <vector>

#include "engine/plan/fit.h"
#include "engine/session.h"

namespace rondo::plan {

// A model and its batches: of equal lengths, with a label for every third frame of the output.
struct MeasuredModel {
  ModelFunction model;  // reads `features` columns, a sequence of classes comes out
  int64_t features = 0;
  int classes = 0, subsample = 1;
  int frames = 0, sequences = 0;
  int labels() const { return frames / subsample / 3; }
};

struct MeasureOptions {
  std::vector<MeasuredModel> models;
  int threads = 1;  // of each rank
  // So many ranks compute at once, as they will: cores share caches, memory and their clock.
  int ranks = 1;
  int repetitions = 5;  // of a step; medians count
  std::vector<DType> dtypes = {DType::f32};
  // Told of each model before it runs: its number, how many there are.
  std::function<void(int, int)> progress = {};
};

// Sample::shape numbers models, and dtypes.
std::vector<Sample> measure_nodes(const MeasureOptions& options);

// What this machine's memory holds, or what the control group of this process may have of it.
double machine_memory_bytes();

}  // namespace rondo::plan
