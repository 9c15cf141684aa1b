// What 'rondo plan' has to know of the data that a configuration names.
#pragma once

#include <vector>

#include "engine/config/config.h"
#include "engine/plan/lengths.h"
#include "engine/plan/split.h"

namespace rondo {

struct PlanData {
  std::vector<plan::LengthShare> lengths;
  std::vector<double> seconds;  // the durations that the lengths sum up; empty: there are none
  double labels_per_second = 0;
  int features = 0, outputs = 0;
  double input_seconds_per_frame = 0;  // of a core, to read an utterance and make its features
};

// Looks at data.train: lengths are the manifest's durations, or those of the utterances looked at,
// the rest is that of 64 utterances from all over it, which are read twice and timed the second
// time. Throws InputError as training would.
PlanData look_at_data(const Config& config);

// The batches of an epoch of these durations (of at least some, again and again, where there are
// few), at the speeds of augment.speed in turn, as the sampler makes them: their means, in at most
// so many groups, from short utterances to long ones. `frames`: of a batch at the most. Throws
// InputError for an utterance that is longer.
std::vector<plan::WeightedShape> sampled_batches(const Config& config,
                                                 const std::vector<double>& seconds,
                                                 double labels_per_second, int groups = 8);

}  // namespace rondo
