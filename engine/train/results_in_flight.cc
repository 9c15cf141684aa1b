#include "engine/train/results_in_flight.h"

#include <cmath>
#include <utility>

#include "engine/rank_model.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/evaluation.h"
#include "kernels/base/error.h"

namespace rondo {

void ResultsInFlight::settle(size_t left) {
  while (in_flight_.size() > left) {
    const Expected item = std::move(in_flight_.front());
    in_flight_.pop_front();
    const StepResult& r = model_.collect();
    if (item.is_update) {
      note_update(item, r);
      since_update_.clear();
    } else {
      note_nonfinite(item, r.losses);
      since_update_.insert(since_update_.end(), item.utterances.begin(), item.utterances.end());
    }
  }
}

void ResultsInFlight::note_update(const Expected& update, const StepResult& r) {
  TrainingState& state = setup_.state;
  state.frames += r.frames;
  state.optimizer_steps = model_.optimizer().steps();
  state.seconds = now_seconds() - started_;
  state.skipped += r.skipped ? 1 : 0;
  state.skipped_in_a_row = r.skipped ? state.skipped_in_a_row + 1 : 0;
  TrainingState then = state;
  then.step = update.step;
  report_.step(then, r, update.rate, update.epoch, expected_steps_, update.times);
  if (r.skipped) note_skipped(update.step);
}

void ResultsInFlight::note_nonfinite(const Expected& batch, const std::vector<float>& losses) {
  for (size_t n = 0; n < losses.size(); ++n) {
    if (!std::isnan(losses[n])) continue;
    report_.message(
        str("warning: ", setup_.train->name(batch.utterances[n]), ": its loss is not a number"));
  }
}

void ResultsInFlight::note_skipped(int64_t step) {
  const TrainingState& state = setup_.state;
  report_.message(str("warning: step ", step, ": the gradient is not finite; skipped (",
                      state.skipped, " so far); its ", noun_of(input_kind(config_.features.type)),
                      "s: ", names_of(*setup_.train, since_update_)));
  if (config_.training.non_finite != OnNonFinite::stop &&
      state.skipped_in_a_row < config_.training.non_finite_limit) {
    return;
  }
  const std::string which =
      state.skipped_in_a_row == 1 ? "a step" : str(state.skipped_in_a_row, " steps in a row");
  trouble_ = str("training stopped at step ", step, ": ", which,
                 " had a gradient that is not finite; lower optimizer.lr or training.clip, and "
                 "look at the data");
}

}  // namespace rondo
