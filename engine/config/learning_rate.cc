#include "engine/config/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// How far the fall from the warm-up's end to the last step has come, in [0, 1].
double progress(const LearningRateConfig& config, int64_t step, int64_t expected_steps) {
  const int64_t total = config.total_steps > 0 ? config.total_steps : expected_steps;
  if (total <= 0) return 0;
  const int64_t span = total - config.warmup_steps;
  if (span <= 0) return 1;
  return std::clamp(static_cast<double>(step - config.warmup_steps) / static_cast<double>(span),
                    0.0, 1.0);
}

}  // namespace

double learning_rate(const LearningRateConfig& config, double lr, int64_t step,
                     int64_t expected_steps, const PlateauState& plateau) {
  RONDO_CHECK(step >= 1, "update number ", step, ", expected at least 1");
  if (step < config.warmup_steps) {
    const double warm = lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
    return config.type == LearningRateType::plateau ? warm * plateau.factor : warm;
  }
  switch (config.type) {
    case LearningRateType::constant:
      return lr;
    case LearningRateType::linear:
      return lr * (1 - (1 - config.final_factor) * progress(config, step, expected_steps));
    case LearningRateType::cosine: {
      const double x = progress(config, step, expected_steps);
      const double fall = (1 + std::cos(std::numbers::pi * x)) / 2;
      return lr * (config.final_factor + (1 - config.final_factor) * fall);
    }
    case LearningRateType::noam:
      return lr * std::sqrt(static_cast<double>(std::max<int64_t>(config.warmup_steps, 1)) /
                            static_cast<double>(step));
    case LearningRateType::step: {
      const int64_t cuts = (step - config.warmup_steps) / config.step_every;
      return lr * std::pow(config.step_factor, static_cast<double>(cuts));
    }
    case LearningRateType::plateau:
      return lr * plateau.factor;
  }
  RONDO_CHECK(false, "learning rate of type ", static_cast<int>(config.type), " does not exist");
  return lr;
}

PlateauState plateau_update(const LearningRateConfig& config, PlateauState state,
                            const Score& score) {
  const auto gains = [&](double value, double best) {
    return value < (std::isinf(best) ? best : best - config.plateau_threshold * std::abs(best));
  };
  const bool by_loss = score.at_worst() || score.metric == state.best;
  if (gains(score.metric, state.best) || (by_loss && gains(score.loss, state.best_loss))) {
    state.best = std::min(state.best, score.metric);
    state.best_loss = score.loss;
    state.bad_validations = 0;
  } else if (++state.bad_validations > config.plateau_patience) {
    state.factor *= config.plateau_factor;
    state.bad_validations = 0;
  }
  return state;
}

}  // namespace rondo
