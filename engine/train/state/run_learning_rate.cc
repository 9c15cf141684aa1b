#include "engine/train/state/run_learning_rate.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

int64_t expected_updates(const TrainingConfig& t, int64_t per_epoch) {
  const int64_t all = per_epoch * t.epochs;
  return t.max_steps > 0 ? std::min(all, t.max_steps) : all;
}

double rate_of(const Config& c, const TrainingState& state, int64_t step, int64_t end) {
  return learning_rate(c.lr, c.optimizer.learning_rate, step, end, state.plateau);
}

bool same(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(a, b); }

std::string rate_text(double rate) { return short_text(rate, 3); }

std::string rate_jump(const Config& before, const Config& now, const TrainingState& state,
                      int64_t end_before, int64_t end_now) {
  if (state.step == 0) return {};
  const int64_t next = state.step + 1;
  const double rate = rate_of(now, state, next, end_now);
  if (same(rate, rate_of(before, state, next, end_before))) return {};
  const std::string text =
      str("the learning rate goes from ", rate_text(rate_of(before, state, state.step, end_before)),
          " to ", rate_text(rate), " with the next update");
  const double kept = rate_of(now, state, next, end_before);
  if (same(kept, rate)) return text + ", by the settings that differ from the run so far";
  return str(text, ": its fall ends after ", end_now, " updates instead of ", end_before,
             "; lr.on_resume=keep leaves the end where it was, and the rate at ", rate_text(kept));
}

}  // namespace

void RunLearningRate::begin(TrainingState& state, int64_t updates_per_epoch) {
  expected_ = state.expected_steps = expected_updates(config_.training, updates_per_epoch);
}

std::string RunLearningRate::go_on(const Config& before, TrainingState& state,
                                   int64_t updates_per_epoch) {
  const int64_t expected_before = state.expected_steps > 0
                                      ? state.expected_steps
                                      : expected_updates(before.training, updates_per_epoch);
  const int64_t end_before = state.fall_end > 0 ? state.fall_end : expected_before;
  begin(state, updates_per_epoch);
  if (expected_ != expected_before) {
    state.fall_end = config_.lr.on_resume == OnResume::keep ? end_before : 0;
  }
  return rate_jump(before, config_, state, end_before, end(state));
}

double RunLearningRate::rate(const TrainingState& state) const {
  return rate_of(config_, state, state.step + 1, end(state));
}

}  // namespace rondo
