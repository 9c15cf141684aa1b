#include "engine/decode/transcript/text_alignment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/data/text_encoder.h"
#include "engine/text/letter_case.h"
#include "engine/text/marks.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {

struct TextSpeller::Building {
  SpelledText text;
  std::vector<UnknownText> unknown;
  bool gap = false;  // before the next word
  const std::string& where;
  size_t line = 0, unknown_line = 0;  // of the text: now, and where the first unknown stands

  void add(std::vector<std::vector<int32_t>> spellings, int32_t word) {
    text.units.push_back({std::move(spellings)});
    text.word_of.push_back(word);
  }
  void note_unknown(const std::string& name) {
    const auto at = std::find_if(unknown.begin(), unknown.end(),
                                 [&](const UnknownText& u) { return u.what == name; });
    if (unknown.empty()) unknown_line = line;
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
    if (options_.unspellable == UnspellableText::error) b.note_unknown(quoted_start(part));
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
    fail_input(b.where, ": the model's tokens do not spell ", quoted_start(part));
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
    b.text.left_out.push_back({word, static_cast<int32_t>(b.text.words.size())});
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
  // A mark may go over two lines.
  const bool has_marks = options_.rules.marks != Marks::keep && is_utf8(text);
  const std::string named = has_marks ? with_named_marks(to_nfc(text)) : std::string(text);
  const std::vector<std::string_view> lines = split_lines(named);
  return spell(std::vector<std::string>(lines.begin(), lines.end()), where);
}

SpelledText TextSpeller::spell(std::span<const std::string> lines, const std::string& where) const {
  Building b{{}, {}, false, where};
  try {
    // A mark with spaces in it is one word.
    const bool has_marks = options_.rules.marks != Marks::keep;
    for (const std::string& line : lines) {
      ++b.line;
      for (const std::string& word :
           split_words(has_marks ? with_named_marks(to_nfc(line)) : to_nfc(line))) {
        if (!options_.gap_word.empty() && word == options_.gap_word) {
          b.gap = true;
        } else {
          add_word(word, b);
        }
      }
      b.text.line_ends.push_back(static_cast<int32_t>(b.text.words.size()));
    }
  } catch (const InputError& e) {
    const std::string message = e.what();
    if (message.starts_with(where)) throw;
    fail_input(where, ": ", message);
  }
  if (!b.unknown.empty())
    fail_input(where, lines.size() > 1 ? str(":", b.unknown_line) : "",
               ": no token of the model stands for ", describe(b.unknown));
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

// Where nobody knows how long a frame lasts, as long as the usual one.
int64_t frames_of_second(double frame_seconds) {
  return frame_seconds < 1 ? std::max<int64_t>(std::llround(1 / frame_seconds), 1) : 50;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : " ") + w;
  return text;
}

}  // namespace

template <class Hear>
void AlignedText::each_second(double begin, double end, Hear hear) const {
  const auto frames = static_cast<int64_t>(shortfall.size());
  const auto first = std::clamp<int64_t>(std::llround(begin / frame_seconds), 0, frames);
  const auto last = std::clamp<int64_t>(std::llround(end / frame_seconds), first, frames);
  const int64_t window = frames_of_second(frame_seconds);
  double sum = 0;
  for (int64_t f = first; f < last; ++f) {
    sum += shortfall[static_cast<size_t>(f)];
    if (f - first >= window) sum -= shortfall[static_cast<size_t>(f - window)];
    hear(Fit{-sum, static_cast<double>(std::max(first, f + 1 - window)) * frame_seconds,
             static_cast<double>(f + 1) * frame_seconds});
  }
}

AlignedText::Fit AlignedText::fit(double begin, double end) const {
  Fit worst;
  worst.begin = worst.end =
      std::clamp(begin, 0.0, frame_seconds * static_cast<double>(shortfall.size()));
  each_second(begin, end, [&](const Fit& second) {
    if (second.score < worst.score) worst = second;
  });
  return worst;
}

std::vector<AlignedText::Fit> AlignedText::misfits(double begin, double end, double bad) const {
  std::vector<Fit> places;
  each_second(begin, end, [&](const Fit& second) {
    if (!(second.score < bad)) return;
    if (places.empty() || second.begin > places.back().end) {
      places.push_back(second);
      return;
    }
    places.back().end = second.end;
    places.back().score = std::min(places.back().score, second.score);
  });
  return places;
}

std::vector<TimedText::Token> AlignedText::shown_words() const {
  std::vector<TimedText::Token> shown;
  const std::vector<TimedText::Token>& words = transcript.words;
  auto next = left_out.begin();
  for (size_t w = 0; w <= words.size(); ++w) {
    for (; next != left_out.end() && next->before == static_cast<int32_t>(w); ++next) {
      const double at = w > 0 ? words[w - 1].end : w < words.size() ? words[w].begin : 0;
      shown.push_back({next->word, at, at, 0});
    }
    if (w < words.size()) shown.push_back(words[w]);
  }
  return shown;
}

namespace {

// How much better the path of a text has to be by one more gap, a logarithm of a ratio of
// probabilities. A common word is in what the text does not have, too, and would stand there
// between two gaps.
constexpr double worth_a_gap = 10;
// Of a second in which the text does not fit (AlignedText::Fit).
constexpr double bad_score = -20;

// A frame from which on the path is in this word, or behind it.
struct Cut {
  int32_t word = 0;
  int64_t frame = 0;
};

// The text between two cuts by itself.
UnitAlignment align_between(const std::vector<Cut>& cuts, const Transcript& t,
                            const SpelledText& text, const AlignmentOptions& options) {
  UnitAlignment all;
  int64_t first = 0;
  ptrdiff_t unit = 0;
  const auto align_up_to = [&](int64_t end, ptrdiff_t end_unit) {
    const std::span units(text.units.begin() + unit, text.units.begin() + end_unit);
    const UnitAlignment part =
        align_units(t.logits.data() + first * t.classes, end - first, t.classes, units, options);
    for (TimedLabel l : part.labels) {
      l.first_frame += static_cast<int32_t>(first);
      l.end_frame += static_cast<int32_t>(first);
      if (l.label == opening_label) l.label = wildcard_label;
      all.labels.push_back(l);
    }
    for (const int32_t u : part.unit_of) all.unit_of.push_back(u + static_cast<int32_t>(unit));
    first = end;
    unit = end_unit;
  };
  for (const Cut& cut : cuts) {
    const auto from = text.word_of.begin() + unit;
    align_up_to(cut.frame, std::find(from, text.word_of.end(), cut.word) - text.word_of.begin());
  }
  align_up_to(t.frames, std::ssize(text.units));
  return all;
}

AlignedText align_once(std::vector<float> logits, const Vocabulary& vocabulary,
                       const SpelledText& text, const TextAlignmentOptions& o, double frame_seconds,
                       const std::vector<Cut>& cuts = {}) {
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
  options.opening_cost = worth_a_gap;
  std::vector<float> bias;
  if (o.label_priors != 0 && t.frames > 0)
    bias = prior_bias(t.logits, static_cast<size_t>(t.classes), o.label_priors);
  options.bias = bias;
  const UnitAlignment found = align_between(cuts, t, text, options);
  std::vector<TimedLabel> kept;
  std::vector<SpelledWord> words;
  for (size_t i = 0; i < found.labels.size(); ++i) {
    const TimedLabel& l = found.labels[i];
    const int32_t word = text.word_of[static_cast<size_t>(found.unit_of[i])];
    if (word == SpelledText::gap) {
      if (l.label != wildcard_label) continue;
      const bool goes_on = i > 0 && found.unit_of[i] == found.unit_of[i - 1] &&
                           found.labels[i - 1].label == wildcard_label;
      const auto before = static_cast<int32_t>(words.size());
      if (!goes_on) a.unwritten.push_back({l.first_frame * frame_seconds, 0, before});
      a.unwritten.back().end = l.end_frame * frame_seconds;
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
  a.left_out = text.left_out;
  a.line_ends = text.line_ends;
  return a;
}

// The text with gaps before the words that are marked, and at the end if one more is. So many
// wildcards with blanks between take half a second at least, so that a gap is no way out for a
// word.
SpelledText with_gaps(const SpelledText& text, const std::vector<bool>& before,
                      const Vocabulary& vocabulary, double frame_seconds) {
  const auto wildcards = static_cast<size_t>(frames_of_second(frame_seconds) / 4 + 1);
  std::vector<int32_t> anything(wildcards, wildcard_label);
  anything.front() = opening_label;
  const int32_t separator =
      vocabulary.border() == WordBorder::separator ? vocabulary.separator() : -1;
  const auto around = [&](bool left, bool right) {
    std::vector<int32_t> way = anything;
    if (separator >= 0 && left) way.insert(way.begin(), separator);
    if (separator >= 0 && right) way.push_back(separator);
    return way;
  };
  SpelledText with = text;
  with.units.clear();
  with.word_of.clear();
  const auto add = [&](AlignmentUnit unit, int32_t word) {
    with.units.push_back(std::move(unit));
    with.word_of.push_back(word);
  };
  int32_t word = -1;  // the last that has begun
  for (size_t i = 0; i < text.units.size(); ++i) {
    const int32_t here = text.word_of[i];
    const int32_t next = i + 1 < text.units.size() ? text.word_of[i + 1] : -1;
    const bool is_border = here == SpelledText::between_words && next > word;
    if (is_border && before[static_cast<size_t>(next)]) {
      AlignmentUnit unit = text.units[i];
      unit.spellings.push_back(around(true, true));
      add(std::move(unit), SpelledText::gap);
      continue;
    }
    // Nothing stands before the first word, or between words without separators.
    const bool has_border = i > 0 && text.word_of[i - 1] < 0;
    if (here > word && before[static_cast<size_t>(here)] && !has_border)
      add({{{}, around(false, true)}}, SpelledText::gap);
    word = std::max(word, here);
    add(text.units[i], here);
  }
  if (before.back() && (text.word_of.empty() || text.word_of.back() >= 0))
    add({{{}, around(true, false)}}, SpelledText::gap);
  return with;
}

// Marks the words that something may be said before: those near a second in which the text does not
// fit. Whether there are any new ones.
bool mark_gaps(const AlignedText& found, std::vector<bool>& before) {
  constexpr double near = 3;  // seconds around a bad one
  constexpr size_t near_words = 3;
  const std::vector<TimedText::Token>& words = found.transcript.words;
  const double unit = found.frame_seconds < 1 ? 1 : static_cast<double>(frames_of_second(1));
  const double seconds = static_cast<double>(found.shortfall.size()) * found.frame_seconds;
  bool any_new = false;
  const auto mark = [&](size_t w) {
    any_new |= !before[w];
    before[w] = true;
  };
  for (size_t w = 0; w <= words.size(); ++w) {
    const double from = w > 0 ? words[w - 1].begin : 0;
    const double to = w < words.size() ? words[w].end : seconds;
    if (found.score(from - near * unit, to + near * unit) > bad_score) continue;
    for (size_t n = w - std::min(w, near_words); n <= std::min(w + near_words, words.size()); ++n)
      mark(n);
  }
  return any_new;
}

// Places that gaps elsewhere will not move: the text fits around them, and no gap is to be looked
// for. A long recording is not aligned anew as a whole, in which a gap could be anywhere.
std::vector<Cut> cuts_of(const AlignedText& found, const std::vector<bool>& before) {
  constexpr double around = 15, apart = 60;  // seconds
  constexpr int32_t around_words = 8;
  const double unit = found.frame_seconds < 1 ? 1 : static_cast<double>(frames_of_second(1));
  const std::vector<TimedText::Token>& words = found.transcript.words;
  std::vector<Cut> cuts;
  double last = 0;
  int32_t marked = -1;  // the last word that a gap may be before
  for (int32_t w = 0; w < static_cast<int32_t>(before.size()); ++w) {
    if (before[static_cast<size_t>(w)]) {
      marked = w;
      while (!cuts.empty() && cuts.back().word + around_words >= w) cuts.pop_back();
    }
    if (w == 0 || w == static_cast<int32_t>(words.size())) continue;
    const double begin = words[static_cast<size_t>(w)].begin;
    if (begin < last + apart * unit || (marked >= 0 && w - marked <= around_words)) continue;
    // A blank between labels that could be the same.
    if (begin - words[static_cast<size_t>(w - 1)].end < 1.5 * found.frame_seconds) continue;
    if (found.score(begin - around * unit, begin + around * unit) <= bad_score) continue;
    cuts.push_back({w, std::llround(begin / found.frame_seconds)});
    last = begin;
  }
  return cuts;
}

}  // namespace

AlignedText align_text(std::vector<float> logits, const Vocabulary& vocabulary,
                       const SpelledText& text, const TextAlignmentOptions& o,
                       double frame_seconds) {
  AlignedText found = align_once(std::move(logits), vocabulary, text, o, frame_seconds);
  if (!o.find_gaps) return found;
  // Between two places that fit a word equally well frames of a gap decide; against one that fits
  // better they hardly count.
  TextAlignmentOptions how = o;
  how.wildcard_cost = std::min(o.wildcard_cost, 0.02);
  constexpr int most_rounds = 4;
  std::vector<bool> before(text.words.size() + 1);
  for (int round = 0; round < most_rounds && mark_gaps(found, before); ++round) {
    const SpelledText with = with_gaps(text, before, vocabulary, frame_seconds);
    const std::vector<Cut> cuts = cuts_of(found, before);
    found =
        align_once(std::move(found.transcript.logits), vocabulary, with, how, frame_seconds, cuts);
  }
  return found;
}

}  // namespace rondo
