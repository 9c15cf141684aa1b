// What 'rondo plan' has to know of the data that a configuration names.
#pragma once

#include <string_view>
#include <vector>

#include "engine/config/config.h"
#include "engine/plan/split.h"

namespace rondo {

struct PlanData {
  std::vector<double> seconds;  // durations of utterances
  double labels_per_second = 0;
  int features = 0, outputs = 0;
  double input_seconds_per_frame = 0;  // of a core, to read an utterance and make its features
};

// Looks at data.train: durations are the manifest's, or those of the utterances looked at, the rest
// is that of 64 utterances from all over it, which are read twice and timed the second time. Throws
// InputError as training would.
PlanData look_at_data(const Config& config);

// "4:2,8:5,16:3", seconds and share: some 200 durations. Throws InputError.
std::vector<double> parse_lengths(std::string_view text);

// The batches of updates over these durations (of enough, again and again, where there are few), at
// the speeds of augment.speed in turn, as the sampler makes them: their means, in at most so many
// groups, from short utterances to long ones. Throws InputError for an utterance that is longer
// than a batch.
std::vector<plan::WeightedShape> sampled_batches(const Config& config, const PlanData& data,
                                                 int groups = 8);

}  // namespace rondo
