// What was recognised: a text, its words and labels with their times and probabilities.
//
// Errors: those of a decoder and of a forced alignment; Error for outputs that are not whole frames
// of the vocabulary's classes, and for a decoder of other classes. Thread safety: plain data and
// pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/decode/transcript/confidence.h"
#include "engine/decode/vocabulary.h"
#include "engine/text/greedy.h"

namespace rondo {

// A text with the times of its parts, in seconds from the start of the utterance.
struct TimedText {
  struct Token {
    std::string text;
    double begin = 0, end = 0;
    double probability = 0;  // how sure it is, by the definition of Confidence that was chosen
  };
  std::string text;
  std::vector<Token> characters, words;  // `characters`: labels, whatever they stand for
};

// One utterance, decoded.
struct Transcript : TimedText {
  // By a decoder: the best texts, the first of which is this one. See DecodedText.
  struct Alternative : TimedText {
    double score = 0, log_probability = 0, lm_log10 = 0;
  };
  std::vector<Alternative> alternatives;
  std::vector<float> logits;  // [frames, classes]
  int64_t frames = 0, classes = 0;
};

// What a model's outputs say: `logits` [frames, classes of the vocabulary]. With `decoder`, the
// best text that it finds, with the times of its best alignment; without, the best class of each
// frame. `frame_seconds`: from one frame to the next. Confidence::posterior takes a decoder whose
// options say so (Error).
Transcript transcript_of(std::vector<float> logits, const Vocabulary& vocabulary,
                         const Decoder* decoder, double frame_seconds,
                         Confidence confidence = Confidence::mean);

// The same of what was found in them already: the texts of a search, the best first.
Transcript transcript_of(std::vector<float> logits, const Vocabulary& vocabulary,
                         const std::vector<DecodedText>& texts, double frame_seconds,
                         Confidence confidence = Confidence::mean);

// Fills in characters and words, found in t.logits. A label of -1 is a wildcard of a forced
// alignment: it is called "*". `confidence`: not `posterior` (Error).
void set_labels(Transcript& t, const Vocabulary& vocabulary, std::span<const TimedLabel> labels,
                std::span<const SpelledWord> words, double frame_seconds, Confidence confidence);

// Of a line that was read from right to left (engine/text/reading_order.h): from the order of
// reading to that of the text. Words are then what stands between spaces of that; times stay.
void turn_leftwards(Transcript& t);

}  // namespace rondo
