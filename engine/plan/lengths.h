// How long utterances are, and which batches follow from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/split.h"

namespace rondo::plan {

// So large a share of the utterances lasts so long.
struct LengthShare {
  double seconds = 0, share = 0;
};

// "4:2,8:5,16:3": seconds and weight, shares sum to 1 afterwards. Throws InputError.
std::vector<LengthShare> parse_lengths(std::string_view text);
// Equal parts of measured durations, sorted, each by its mean. At most `parts`.
std::vector<LengthShare> histogram_of(std::vector<double> seconds, int parts = 8);

// Batches of about `batch_frames` frames, each of utterances of one length: as the sampler makes
// them, at least one utterance. The weight is a batch's share of all batches.
std::vector<WeightedShape> batches_of(const std::vector<LengthShare>& lengths, double hop_seconds,
                                      double batch_frames, double labels_per_second);

}  // namespace rondo::plan
