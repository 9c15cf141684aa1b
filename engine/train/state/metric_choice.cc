#include "engine/train/state/metric_choice.h"

#include "engine/config/metric.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string change_metric(TrainingState& state, Metric wanted) {
  const std::string before = title_of(state.chosen_by);
  const bool known = state.choose_by(wanted);
  return str("from here on ", title_of(wanted), " chooses the best model, so far ", before,
             " did; the best so far has ",
             known ? metric_text(wanted, state.best_metric)
                   : "none that is known, so the next validation takes its place");
}

}  // namespace

std::string choose_metric(TrainingState& state, const Config& config, bool resumed,
                          const WordSpacing* spacing) {
  const Metric wanted = config.training.metric;
  // Before there was a choice it was the usual one.
  if (resumed && state.chosen_by == Metric::automatic) state.chosen_by = usual_metric(config.task);
  if (wanted != Metric::automatic) {
    if (resumed && wanted != state.chosen_by) return change_metric(state, wanted);
    state.chosen_by = wanted;
    return {};
  }
  if (resumed) return {};
  state.chosen_by = usual_metric(config.task);
  if (!spacing || (!spacing->unspaced_script() && !spacing->long_words())) return {};
  state.chosen_by = Metric::cer;
  return str("the best model is chosen by CER: the texts of ", config.data.dev,
             spacing->unspaced_script() ? " are in a script without spaces between words"
                                        : " are long and have hardly any spaces",
             " (training.metric)");
}

}  // namespace rondo
