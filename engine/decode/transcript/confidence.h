// How sure a label or a word of a transcript is: several definitions, to choose from. All are
// between 0 and 1, and 1 is sure.
//
// A label has the frames in which the best alignment of the text says it, a word its labels (a
// separator between words belongs to none). p is the softmax of a frame's scores at the label, of a
// wildcard at the best class.
//
//   mean       label: the arithmetic mean of p over its frames; word: that of its labels' values
//   geometric  label: the geometric mean of p over its frames; word: that of its labels' values
//   min        label: the least p of its frames; word: the least of its labels' values
//   product    label: the product of p over its frames; word: that of its labels' values. So it
//              falls with length; blanks do not count
//   entropy    as mean, with a frame's entropy in place of p: (exp(-H) - exp(-M)) / (1 - exp(-M)),
//              where H is Tsallis' entropy, H = (1 - sum p_k^a) / (a - 1) with a = 1/3 over all K
//              classes, and M the most that it can be, (1 - K^(1 - a)) / (a - 1) (Laptev and
//              Ginsburg 2022, "Fast Entropy-Based Methods of Word-Level Confidence Estimation for
//              End-to-End Automatic Speech Recognition"). It does not look at which class it is
//   posterior  by a search alone: the share of the beam's texts, each weighed by exp(its score),
//              that have the same label or word in the same place. See DecodedText
//
// A frame whose scores have no finite largest, or a NaN among them, counts as 0: nothing is known
// there. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rondo {

enum class Confidence : uint8_t { mean, geometric, min, product, entropy, posterior };

// As above; throws Error for a name that is none.
Confidence confidence_of(const std::string& name);
// In the order of the enumeration.
std::vector<std::string> confidence_names();

// Of a label in its frames: rows of `classes` logits or log-probabilities, one row at least. Throws
// Error for `posterior`, which is not in them.
double label_confidence(Confidence definition, std::span<const float> rows, int64_t classes,
                        int32_t label);
// Of a word, from its labels' values, of which there is one at least. Throws Error for `posterior`.
double word_confidence(Confidence definition, std::span<const double> labels);

}  // namespace rondo
