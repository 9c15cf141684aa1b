// A long recording and its text, cut at pauses into utterances that a model can be trained on.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/decode/transcript/text_alignment.h"

namespace rondo {

struct UtteranceOptions {
  double longest = 15;  // seconds; a single word may be longer
  double pause = 0.3;   // between words; cuts within shorter ones are avoided
  double margin = 0.3;  // what is kept before the first word and behind the last, at most
};

struct Utterance {
  double begin = 0, end = 0;             // seconds
  int32_t first_word = 0, end_word = 0;  // of the transcript
  double score = 0;                      // AlignedText::score()
  double probability = 0;                // mean of its words'

  bool operator==(const Utterance&) const = default;
};

// In their order, without overlap; every word is in one. Of all ways to cut, the one with the least
// cost: a cut costs 1, up to 4 more the shorter its pause is than `pause`, and less than 0.1 more
// the shorter it is at all. Stretches that hold what is not in the text (AlignedText::unwritten)
// belong to none. `seconds`: the recording's length.
std::vector<Utterance> split_into_utterances(const AlignedText& text, double seconds,
                                             const UtteranceOptions& options);

}  // namespace rondo
