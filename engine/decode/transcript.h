// What was recognised: a text, its words and labels with their times and probabilities.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/vocabulary.h"
#include "engine/text/greedy.h"

namespace rondo {

// One utterance, decoded. Times are in seconds from its start.
struct Transcript {
  std::string text;
  struct Token {
    std::string text;
    double begin = 0, end = 0;
    double probability = 0;  // of a label: mean of the softmax over its frames; of a word: mean of
                             // its labels
  };
  std::vector<Token> characters, words;  // `characters`: labels, whatever they stand for
  // With a beam: the best label sequences, the first of which the text is.
  struct Alternative {
    std::string text;
    double log_probability = 0;  // natural logarithm
  };
  std::vector<Alternative> alternatives;
  std::vector<float> logits;  // [frames, classes]
  int64_t frames = 0, classes = 0;
};

// Fills in characters and words from the labels, found in t.logits. The text stays.
void set_labels(Transcript& t, const Vocabulary& vocabulary, std::span<const TimedLabel> labels,
                double frame_seconds);

}  // namespace rondo
