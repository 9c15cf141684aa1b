#include "engine/decode/transcript/text_alignment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/data/text_encoder.h"
#include "engine/text/letter_case.h"
#include "engine/text/marks.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {

struct TextSpeller::Building {
  SpelledText text;
  std::vector<UnknownText> unknown;
  bool gap = false;  // before the next word
  const std::string& where;

  void add(std::vector<std::vector<int32_t>> spellings, int32_t word) {
    text.units.push_back({std::move(spellings)});
    text.word_of.push_back(word);
  }
  void note_unknown(const std::string& name) {
    const auto at = std::find_if(unknown.begin(), unknown.end(),
                                 [&](const UnknownText& u) { return u.what == name; });
    if (at == unknown.end()) {
      unknown.push_back({name, 1});
    } else {
      ++at->count;
    }
  }
};

TextSpeller::TextSpeller(const Vocabulary& vocabulary, SpellingOptions options,
                         const std::vector<Spelling>& lexicon)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  for (const Spelling& s : lexicon) lexicon_[s.word].push_back(s.labels);
}

// Of a word with characters that no token stands for: without them, or with wildcards in their
// place. Empty: nothing is left.
std::vector<int32_t> TextSpeller::around_unknown(const std::string& part, Building& b) const {
  if (vocabulary_.has_whole_words()) {
    if (options_.unspellable == UnspellableText::error) b.note_unknown("'" + part + "'");
    if (options_.unspellable != UnspellableText::wildcard) return {};
    return {wildcard_label};
  }
  const bool marked = vocabulary_.border() == WordBorder::prefix;
  std::vector<int32_t> labels;
  std::string known;
  const auto spell_known = [&] {
    if (known.empty()) return;
    // The mark of a word's begin is no part of its later pieces.
    std::optional<std::vector<int32_t>> found;
    if (!marked || labels.empty()) found = vocabulary_.spell(known);
    if (!found) {
      found.emplace();
      for (const char32_t c : code_points(known)) {
        if (const auto label = vocabulary_.find(to_utf8(c))) found->push_back(*label);
      }
    }
    labels.insert(labels.end(), found->begin(), found->end());
    known.clear();
  };
  bool any_unknown = false;
  for (const char32_t c : code_points(part)) {
    const auto label = vocabulary_.find(to_utf8(c));
    if (label && *label != vocabulary_.separator()) {
      known += to_utf8(c);
      continue;
    }
    any_unknown = true;
    if (options_.unspellable == UnspellableText::error) b.note_unknown(describe(c));
    if (options_.unspellable != UnspellableText::wildcard) continue;
    spell_known();
    if (labels.empty() || labels.back() != wildcard_label) labels.push_back(wildcard_label);
  }
  if (!any_unknown && options_.unspellable == UnspellableText::error)
    fail_input(b.where, ": the model's tokens do not spell '", part, "'");
  spell_known();
  return labels;
}

std::vector<std::vector<int32_t>> TextSpeller::spellings(const std::string& part,
                                                         Building& b) const {
  if (const auto found = lexicon_.find(part); found != lexicon_.end()) return found->second;
  if (const auto labels = vocabulary_.spell(part)) return {*labels};
  std::vector<int32_t> labels = around_unknown(part, b);
  if (labels.empty()) return {};
  return {std::move(labels)};
}

// Between two words, or at an end of the text.
void TextSpeller::add_border(bool gap, Building& b, bool at_end) const {
  const bool first = b.text.units.empty();
  const int32_t separator =
      vocabulary_.border() == WordBorder::separator ? vocabulary_.separator() : -1;
  if (!gap) {
    if (separator >= 0 && !first && !at_end) b.add({{separator}}, SpelledText::between_words);
    return;
  }
  std::vector<std::vector<int32_t>> ways = {{}, {wildcard_label}};
  if (separator >= 0) {
    const bool inside = !first && !at_end;
    if (inside) ways = {{separator}};
    if (inside) ways.push_back({separator, wildcard_label, separator});
    if (first) ways.push_back({wildcard_label, separator});
    if (at_end) ways.push_back({separator, wildcard_label});
  }
  b.add(std::move(ways), SpelledText::gap);
}

namespace {

// Marks that are symbols stay as they are.
std::string in_capitals(const std::string& text, const TextRules& rules) {
  if (rules.marks != Marks::token) return to_upper(text, rules.locale);
  std::string capitals;
  for (const TextPiece& p : pieces_of(text))
    capitals += p.is_mark ? p.text : to_upper(p.text, rules.locale);
  return capitals;
}

}  // namespace

void TextSpeller::add_word(const std::string& word, Building& b) const {
  std::string said = apply_rules(options_.rules, word);
  if (options_.uppercase) said = in_capitals(said, options_.rules);
  std::vector<std::vector<std::vector<int32_t>>> parts;  // of "well-known", say
  for (const std::string& part : split_words(said)) {
    auto found = spellings(part, b);
    if (!found.empty()) parts.push_back(std::move(found));
  }
  if (parts.empty()) {
    b.text.left_out.push_back(word);
    return;
  }
  const auto number = static_cast<int32_t>(b.text.words.size());
  add_border(b.gap || (number == 0 && options_.open_ends), b, false);
  b.gap = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) add_border(false, b, false);
    b.add(std::move(parts[i]), number);
  }
  b.text.words.push_back(word);
}

SpelledText TextSpeller::spell(std::string_view text, const std::string& where) const {
  Building b{{}, {}, false, where};
  try {
    // A mark with spaces in it is one word.
    const bool has_marks = options_.rules.marks != Marks::keep;
    for (const std::string& word :
         split_words(has_marks ? with_named_marks(to_nfc(text)) : to_nfc(text))) {
      if (!options_.gap_word.empty() && word == options_.gap_word) {
        b.gap = true;
      } else {
        add_word(word, b);
      }
    }
  } catch (const InputError& e) {
    const std::string message = e.what();
    if (message.starts_with(where)) throw;
    fail_input(where, ": ", message);
  }
  if (!b.unknown.empty())
    fail_input(where, ": no token of the model stands for ", describe(b.unknown));
  if (b.text.words.empty()) fail_input(where, ": holds no word that could be aligned");
  add_border(b.gap || options_.open_ends, b, true);
  return std::move(b.text);
}

namespace {

// What is added to the logits of each class.
std::vector<float> prior_bias(const std::vector<float>& logits, size_t classes, double weight) {
  constexpr double least = 1e-4;
  std::vector<double> mean(classes, 0), row(classes);
  const size_t frames = logits.size() / classes;
  for (size_t t = 0; t < frames; ++t) {
    const float* values = &logits[t * classes];
    const float largest = *std::max_element(values, values + classes);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) {
      row[c] = std::exp(static_cast<double>(values[c] - largest));
      sum += row[c];
    }
    for (size_t c = 0; c < classes; ++c) mean[c] += row[c] / sum;
  }
  std::vector<float> bias;
  for (const double m : mean) {
    const double p = std::max(m / static_cast<double>(frames), least);
    bias.push_back(static_cast<float>(-weight * std::log(p)));
  }
  return bias;
}

std::vector<float> shortfall_of(const Transcript& t, const std::vector<TimedLabel>& path,
                                int32_t blank) {
  const auto classes = static_cast<size_t>(t.classes);
  std::vector<int32_t> said(static_cast<size_t>(t.frames), blank);
  for (const TimedLabel& l : path)
    std::fill(said.begin() + l.first_frame, said.begin() + l.end_frame, l.label);
  std::vector<float> shortfall;
  for (size_t f = 0; f < said.size(); ++f) {
    const float* row = &t.logits[f * classes];
    const float best = *std::max_element(row, row + classes);
    shortfall.push_back(said[f] < 0 ? 0 : best - row[said[f]]);
  }
  return shortfall;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : " ") + w;
  return text;
}

}  // namespace

double AlignedText::score(double begin, double end) const {
  const auto frames = static_cast<int64_t>(shortfall.size());
  const auto first = std::clamp<int64_t>(std::llround(begin / frame_seconds), 0, frames);
  const auto last = std::clamp<int64_t>(std::llround(end / frame_seconds), first, frames);
  const int64_t window = std::max<int64_t>(std::llround(1 / frame_seconds), 1);
  double sum = 0, worst = 0;
  for (int64_t f = first; f < last; ++f) {
    sum += shortfall[static_cast<size_t>(f)];
    if (f - first >= window) sum -= shortfall[static_cast<size_t>(f - window)];
    worst = std::max(worst, sum);
  }
  return worst > 0 ? -worst : 0;
}

AlignedText align_text(std::vector<float> logits, const Vocabulary& vocabulary,
                       const SpelledText& text, const TextAlignmentOptions& o,
                       double frame_seconds) {
  AlignedText a;
  a.frame_seconds = frame_seconds;
  Transcript& t = a.transcript;
  t.classes = vocabulary.classes();
  t.frames = static_cast<int64_t>(logits.size()) / t.classes;
  t.logits = std::move(logits);
  t.text = joined(text.words);
  AlignmentOptions options;
  options.blank = vocabulary.blank();
  options.wildcard_cost = o.wildcard_cost;
  std::vector<float> bias;
  if (o.label_priors != 0 && t.frames > 0)
    bias = prior_bias(t.logits, static_cast<size_t>(t.classes), o.label_priors);
  options.bias = bias;
  const UnitAlignment found =
      align_units(t.logits.data(), t.frames, vocabulary.classes(), text.units, options);
  std::vector<TimedLabel> kept;
  std::vector<SpelledWord> words;
  for (size_t i = 0; i < found.labels.size(); ++i) {
    const TimedLabel& l = found.labels[i];
    const int32_t word = text.word_of[static_cast<size_t>(found.unit_of[i])];
    if (word == SpelledText::gap) {
      if (l.label == wildcard_label)
        a.unwritten.push_back({l.first_frame * frame_seconds, l.end_frame * frame_seconds});
      continue;
    }
    kept.push_back(l);
    const auto end = static_cast<int32_t>(kept.size());
    if (word < 0) continue;
    if (word == static_cast<int32_t>(words.size()))
      words.push_back({text.words[static_cast<size_t>(word)], end - 1, end});
    words.back().end_label = end;
  }
  set_labels(t, vocabulary, kept, words, frame_seconds, o.confidence);
  a.shortfall = shortfall_of(t, found.labels, vocabulary.blank());
  return a;
}

}  // namespace rondo
