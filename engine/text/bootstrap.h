// How far an error rate may be off because the utterances are these and not others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/text/error_rate.h"

namespace rondo {

struct RateInterval {
  double low = 0, high = 0;
};

inline constexpr int bootstrap_samples = 1000;

// The 95 % confidence interval of the rate of all utterances together, by the percentile bootstrap
// over utterances (Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR
// performance evaluation", 2004): of 1000 draws of as many utterances with replacement, the 2.5 and
// 97.5 percentiles of their rates (interpolated). Utterances are taken to be independent;
// those of one speaker are not, so that of few speakers the interval is too narrow. Without any
// error it is [0, 0], which says nothing.
//
// None for fewer than two utterances, or where references are empty. A draw without a word of
// reference is left out. The draws depend on the number of utterances alone, so the same
// utterances in the same order give the same interval everywhere.
// Thread safety: pure function. Time O(1000 utterances).
std::optional<RateInterval> bootstrap_interval(std::span<const EditCounts> utterances);

// The same of the difference of two rates, the second's less the first's, of what two systems wrote
// for the same utterances: each draw takes the same utterances of both.
std::optional<RateInterval> bootstrap_difference(std::span<const EditCounts> first,
                                                 std::span<const EditCounts> second);

}  // namespace rondo
