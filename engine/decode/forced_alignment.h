// Where the labels of a given text lie in the outputs of a CTC model: the most probable alignment
// (Viterbi) through blank, label, blank, label, ..., blank.
//
// Time grows with frames times labels, and so does memory: two bytes for each.
// Errors: InputError where the frames are too few for the labels, or no alignment has a probability
// above 0; Error for a NaN score, naming the frame. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/text/greedy.h"

namespace rondo {

// `scores`: [frames, classes], logits or log-probabilities. Labels are other classes than the
// blank.
std::vector<TimedLabel> forced_alignment(const float* scores, int32_t frames, int32_t classes,
                                         std::span<const int32_t> labels, int32_t blank = 0);

}  // namespace rondo
