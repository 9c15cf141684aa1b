#include "engine/decode/transcript.h"

#include <algorithm>
#include <cmath>

namespace rondo {
namespace {

// Of a class in the softmax of a row of logits.
double probability(std::span<const float> row, int32_t label) {
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float v : row) sum += std::exp(static_cast<double>(v - largest));
  return std::exp(static_cast<double>(row[static_cast<size_t>(label)] - largest)) / sum;
}

}  // namespace

void set_labels(Transcript& t, const Vocabulary& vocabulary, std::span<const TimedLabel> labels,
                double frame_seconds) {
  t.characters.clear();
  t.words.clear();
  int in_word = 0;  // labels
  const auto close = [&] {
    if (in_word > 0) t.words.back().probability /= in_word;
    in_word = 0;
  };
  for (const TimedLabel& l : labels) {
    const Vocabulary::Token& token = vocabulary.token(l.label);
    Transcript::Token c;
    c.text = token.name;
    c.begin = l.first_frame * frame_seconds;
    c.end = l.end_frame * frame_seconds;
    for (int32_t f = l.first_frame; f < l.end_frame; ++f) {
      const auto row = std::span(t.logits).subspan(static_cast<size_t>(f * t.classes),
                                                   static_cast<size_t>(t.classes));
      c.probability += probability(row, l.label);
    }
    c.probability /= l.end_frame - l.first_frame;
    if (token.opens) close();
    if (!token.piece.empty()) {
      if (in_word++ == 0) t.words.push_back({{}, c.begin, c.end, 0});
      Transcript::Token& word = t.words.back();
      word.text += token.piece;
      word.end = c.end;
      word.probability += c.probability;
    }
    if (token.closes) close();
    t.characters.push_back(std::move(c));
  }
  close();
}

}  // namespace rondo
