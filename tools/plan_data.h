// What 'rondo plan' has to know of the data that a configuration names.
#pragma once

#include <vector>

#include "engine/config/config.h"
#include "engine/plan/lengths.h"

namespace rondo {

struct PlanData {
  std::vector<plan::LengthShare> lengths;
  double labels_per_second = 0;
  int features = 0, outputs = 0;
  double input_seconds_per_frame = 0;  // of a core, to read an utterance and make its features
};

// Of data.train: lengths are the manifest's durations, or those of the utterances looked at, the
// rest is that of 64 utterances from all over it, which are read twice and timed the second time.
// Throws InputError as training would.
PlanData look_at_data(const Config& config);

}  // namespace rondo
