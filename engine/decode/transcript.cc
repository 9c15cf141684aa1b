#include "engine/decode/transcript.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/decode/align/forced_alignment.h"
#include "engine/text/greedy.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"

namespace rondo {
namespace {

// Of a class in the softmax of a row of logits; of a wildcard: the largest.
double probability(std::span<const float> row, int32_t label) {
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float v : row) sum += std::exp(static_cast<double>(v - largest));
  if (label == wildcard_label) return 1 / sum;
  return std::exp(static_cast<double>(row[static_cast<size_t>(label)] - largest)) / sum;
}

}  // namespace

void set_labels(Transcript& t, const Vocabulary& vocabulary, std::span<const TimedLabel> labels,
                std::span<const SpelledWord> words, double frame_seconds) {
  for (const TimedLabel& l : labels) {
    Transcript::Token& c = t.characters.emplace_back();
    c.text = l.label == wildcard_label ? "*" : vocabulary.token(l.label).name;
    c.begin = l.first_frame * frame_seconds;
    c.end = l.end_frame * frame_seconds;
    for (int32_t f = l.first_frame; f < l.end_frame; ++f) {
      const auto row = std::span(t.logits).subspan(static_cast<size_t>(f * t.classes),
                                                   static_cast<size_t>(t.classes));
      c.probability += probability(row, l.label);
    }
    c.probability /= l.end_frame - l.first_frame;
  }
  for (const SpelledWord& w : words) {
    if (w.first_label == w.end_label) continue;
    const auto parts = std::span(t.characters)
                           .subspan(static_cast<size_t>(w.first_label),
                                    static_cast<size_t>(w.end_label - w.first_label));
    Transcript::Token& word = t.words.emplace_back();
    word.text = w.text;
    word.begin = parts.front().begin;
    word.end = parts.back().end;
    for (const Transcript::Token& c : parts) word.probability += c.probability;
    word.probability /= static_cast<double>(parts.size());
  }
}

Transcript transcript_of(std::vector<float> logits, const Vocabulary& vocabulary,
                         const Decoder* decoder, double frame_seconds) {
  Transcript t;
  t.logits = std::move(logits);
  t.classes = vocabulary.classes();
  t.frames = static_cast<int64_t>(t.logits.size()) / t.classes;
  const auto frames = static_cast<int32_t>(t.frames);
  if (!decoder) {
    auto labels = greedy_ctc(t.logits.data(), frames, vocabulary.classes(), vocabulary.blank());
    std::erase_if(labels, [&](const auto& l) { return !vocabulary.token(l.label).is_written; });
    const std::vector<int32_t> written = labels_of(labels);
    t.text = vocabulary.text(written);
    set_labels(t, vocabulary, labels, vocabulary.words(written), frame_seconds);
    return t;
  }
  const std::vector<DecodedText> texts = decoder->decode(t.logits.data(), frames);
  for (const DecodedText& d : texts)
    t.alternatives.push_back({d.text, d.score, d.log_probability, d.lm_log10});
  const DecodedText& best = texts.front();
  t.text = best.text;
  const auto labels = forced_alignment(t.logits.data(), frames, vocabulary.classes(), best.labels,
                                       vocabulary.blank());
  set_labels(t, vocabulary, labels, best.words, frame_seconds);
  return t;
}

void turn_leftwards(Transcript& t) {
  std::vector<char32_t> begins;
  for (const Transcript::Token& c : t.characters) begins.push_back(code_points(c.text).at(0));
  std::vector<Transcript::Token> characters;
  for (const size_t i : leftward_order(begins)) characters.push_back(std::move(t.characters[i]));
  t.characters = std::move(characters);
  t.text = in_leftward_order(t.text);
  for (Transcript::Alternative& a : t.alternatives) a.text = in_leftward_order(a.text);
  t.words.clear();
  double letters = 0;  // of the word
  for (const Transcript::Token& c : t.characters) {
    if (is_white_space(code_points(c.text).at(0))) {
      letters = 0;
      continue;
    }
    if (letters == 0) t.words.push_back({"", c.begin, c.end, 0});
    Transcript::Token& word = t.words.back();
    word.text += c.text;
    word.begin = std::min(word.begin, c.begin);
    word.end = std::max(word.end, c.end);
    word.probability = (word.probability * letters + c.probability) / (letters + 1);
    ++letters;
  }
}

}  // namespace rondo
