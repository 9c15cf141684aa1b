// Learning rates as pure functions of the update's number: nothing to restore but the plateau's
// state.
//
// Thread safety: free functions on plain data.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/config/config.h"
#include "engine/io/score.h"

namespace rondo {

// What the type plateau has seen; part of a checkpoint. Unused by the others.
struct PlateauState {
  double factor = 1;                                           // product of the cuts so far
  double best = std::numeric_limits<double>::infinity();       // metric
  double best_loss = std::numeric_limits<double>::infinity();  // at the last progress
  int bad_validations = 0;  // in a row, since the last progress or cut

  bool operator==(const PlateauState&) const = default;
};

// The learning rate of update `step` (the first is 1), with peak `lr`.
//
// Warm-up: lr * step / warmup_steps up to warmup_steps. After it, with s = step - warmup_steps:
//   constant  lr
//   linear    straight from lr to lr * final_factor at total_steps, and that from there on
//   cosine    half a cosine between the same ends
//   noam      lr * sqrt(warmup_steps / step); warmup_steps of 0 counts as 1 (Vaswani 2017, 5.3,
//   with
//             the peak given instead of the model's size)
//   step      lr * step_factor ^ floor(s / step_every)
//   plateau   lr * plateau.factor
// `total_steps` is that of the config, or, where it is 0, the number of updates the caller expects.
// Linear and cosine without either stay at lr.
double learning_rate(const LearningRateConfig& config, double lr, int64_t step,
                     int64_t expected_steps, const PlateauState& plateau = {});

// The state after a validation. Progress is a metric below best * (1 - plateau_threshold), or below
// best by that share of |best| if best is negative; or, where the metric stands at its worst or
// where it was, a loss so much below best_loss. After more than plateau_patience validations
// without progress the factor is cut. NaN is no progress.
PlateauState plateau_update(const LearningRateConfig& config, PlateauState state,
                            const Score& score);

}  // namespace rondo
