// Which metric chooses among the validations of a run.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "engine/text/error_rate.h"
#include "engine/train/state/training_state.h"

namespace rondo {

// Sets it in the state of a run that begins: as training.metric says, or by the references of
// `dev`; or in that of one that goes on, which keeps its own unless another is asked for. Returns
// a sentence where people would not expect the result, else nothing. `spacing` is of the
// references of the validation data, nullptr without such data and unless the task is ctc.
std::string choose_metric(TrainingState& state, const Config& config, bool resumed,
                          const WordSpacing* spacing);

}  // namespace rondo
