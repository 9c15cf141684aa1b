#include "engine/decode/transcript/transcript.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/decode/align/forced_alignment.h"
#include "engine/text/greedy.h"
#include "engine/text/marks.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Fills in characters and words, found in the frames of `logits`.
void set_times(TimedText& t, std::span<const float> logits, const Vocabulary& vocabulary,
               std::span<const TimedLabel> labels, std::span<const SpelledWord> words,
               double frame_seconds, Confidence confidence) {
  std::vector<double> sure;
  const int64_t classes = vocabulary.classes();
  for (const TimedLabel& l : labels) {
    TimedText::Token& c = t.characters.emplace_back();
    c.text = l.label == wildcard_label ? "*" : vocabulary.token(l.label).name;
    c.begin = l.first_frame * frame_seconds;
    c.end = l.end_frame * frame_seconds;
    const int64_t frames = l.end_frame - l.first_frame;
    const auto rows = logits.subspan(static_cast<size_t>(l.first_frame * classes),
                                     static_cast<size_t>(frames * classes));
    c.probability = label_confidence(confidence, rows, classes, l.label);
    sure.push_back(c.probability);
  }
  for (const SpelledWord& w : words) {
    if (w.first_label == w.end_label) continue;
    const auto first = static_cast<size_t>(w.first_label);
    const auto count = static_cast<size_t>(w.end_label - w.first_label);
    const auto parts = std::span(t.characters).subspan(first, count);
    TimedText::Token& word = t.words.emplace_back();
    word.text = w.text;
    word.begin = parts.front().begin;
    word.end = parts.back().end;
    word.probability = word_confidence(confidence, std::span(sure).subspan(first, count));
  }
}

void set_posteriors(TimedText& t, const DecodedText& text) {
  RONDO_CHECK(text.label_posteriors.size() == text.labels.size(),
              "confidence by posteriors takes a decoder that finds them");
  for (size_t i = 0; i < t.characters.size(); ++i)
    t.characters[i].probability = text.label_posteriors[i];
  auto word = t.words.begin();
  for (size_t i = 0; i < text.words.size(); ++i) {
    if (text.words[i].first_label == text.words[i].end_label) continue;  // set_times leaves it out
    (word++)->probability = text.word_posteriors[i];
  }
}

int64_t count_frames(std::span<const float> logits, const Vocabulary& vocabulary) {
  const int32_t classes = vocabulary.classes();
  RONDO_CHECK(classes > 0 && logits.size() % static_cast<size_t>(classes) == 0, "outputs of ",
              logits.size(), " numbers, expected rows of ", classes, " classes");
  return static_cast<int64_t>(logits.size()) / classes;
}

// Of frames and classes.
Transcript without_text(std::vector<float> logits, const Vocabulary& vocabulary) {
  Transcript t;
  t.frames = count_frames(logits, vocabulary);
  t.logits = std::move(logits);
  t.classes = vocabulary.classes();
  return t;
}

}  // namespace

void set_labels(Transcript& t, const Vocabulary& vocabulary, std::span<const TimedLabel> labels,
                std::span<const SpelledWord> words, double frame_seconds, Confidence confidence) {
  set_times(t, t.logits, vocabulary, labels, words, frame_seconds, confidence);
}

Transcript transcript_of(std::vector<float> logits, const Vocabulary& vocabulary,
                         const Decoder* decoder, double frame_seconds, Confidence confidence) {
  if (decoder) {
    require_fit(*decoder, vocabulary);
    const int64_t frames = count_frames(logits, vocabulary);
    const auto texts = decoder->decode(logits.data(), static_cast<int32_t>(frames));
    return transcript_of(std::move(logits), vocabulary, texts, frame_seconds, confidence);
  }
  Transcript t = without_text(std::move(logits), vocabulary);
  auto labels = greedy_ctc(t.logits.data(), static_cast<int32_t>(t.frames), vocabulary.classes(),
                           vocabulary.blank());
  std::erase_if(labels, [&](const auto& l) { return !vocabulary.token(l.label).is_written; });
  const std::vector<int32_t> written = labels_of(labels);
  t.text = vocabulary.text(written);
  set_labels(t, vocabulary, labels, vocabulary.words(written), frame_seconds, confidence);
  return t;
}

Transcript transcript_of(std::vector<float> logits, const Vocabulary& vocabulary,
                         const std::vector<DecodedText>& texts, double frame_seconds,
                         Confidence confidence) {
  Transcript t = without_text(std::move(logits), vocabulary);
  const bool by_search = confidence == Confidence::posterior;
  for (const DecodedText& d : texts) {
    Transcript::Alternative& a = t.alternatives.emplace_back();
    a.text = d.text;
    a.score = d.score;
    a.log_probability = d.log_probability;
    a.lm_log10 = d.lm_log10;
    const auto labels = forced_alignment(t.logits.data(), static_cast<int32_t>(t.frames),
                                         vocabulary.classes(), d.labels, vocabulary.blank());
    set_times(a, t.logits, vocabulary, labels, d.words, frame_seconds,
              by_search ? Confidence::mean : confidence);
    if (by_search) set_posteriors(a, d);
  }
  static_cast<TimedText&>(t) = t.alternatives.front();
  return t;
}

namespace {

std::string text_of(std::span<const TimedText::Token> tokens) {
  std::string text;
  for (const TimedText::Token& t : tokens) text += t.text;
  return text;
}

void turn(TimedText& t) {
  constexpr char32_t undirected = 0xfffc;  // a mark, which is one sign
  std::vector<char32_t> signs;
  for (const TimedText::Token& c : t.characters)
    signs.push_back(is_mark(c.text) ? undirected : code_points(c.text).at(0));
  const bool is_of_tokens = t.text == text_of(t.characters);
  std::vector<TimedText::Token> characters;
  for (const size_t i : logical_order(signs)) characters.push_back(std::move(t.characters[i]));
  t.characters = std::move(characters);
  t.text = is_of_tokens ? text_of(t.characters) : in_logical_order(t.text);
  t.words.clear();
  double letters = 0;  // of the word
  for (const TimedText::Token& c : t.characters) {
    if (is_white_space(code_points(c.text).at(0))) {
      letters = 0;
      continue;
    }
    if (letters == 0) t.words.push_back({"", c.begin, c.end, 0});
    TimedText::Token& word = t.words.back();
    word.text += c.text;
    word.begin = std::min(word.begin, c.begin);
    word.end = std::max(word.end, c.end);
    word.probability = (word.probability * letters + c.probability) / (letters + 1);
    ++letters;
  }
}

}  // namespace

void turn_leftwards(Transcript& t) {
  turn(t);
  for (Transcript::Alternative& a : t.alternatives) turn(a);
}

}  // namespace rondo
