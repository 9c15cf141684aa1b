#include "tools/corpus/examination/text_findings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "engine/text/alphabet.h"
#include "engine/text/characters.h"
#include "engine/text/marks.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// How often what was found, and where first.
struct Tally {
  static constexpr size_t most_kinds = 10000;  // more are counted as one
  std::map<std::string, int64_t> kinds;
  std::string first;
  int64_t texts = 0, last_text = -1;

  void add(const std::string& kind, int64_t text, const std::string& where, int64_t count = 1) {
    if (texts == 0) first = where;
    texts += text != last_text;
    last_text = text;
    const auto known = kinds.find(kind);
    if (known != kinds.end()) {
      known->second += count;
    } else {
      kinds[kinds.size() < most_kinds ? kind : "others"] += count;
    }
  }
  TextFinding finding(std::string what, std::string advice) const {
    TextFinding f{std::move(what), texts, first, {kinds.begin(), kinds.end()}, std::move(advice)};
    std::stable_sort(f.kinds.begin(), f.kinds.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return f;
  }
};

// What texts hold in several forms for one meaning. It may all be written as `plain` if that is
// ASCII, else as the most frequent.
struct Alikes {
  const char* what;
  char32_t plain;
  std::u32string_view others;
};

constexpr std::array alike_signs{
    Alikes{"apostrophes", U'\'', U"\u2019\u02bc\u2032\u00b4`"},
    Alikes{"quotation marks", U'"', U"\u201c\u201d\u201e\u201f\u2033"},
    Alikes{"hyphens", U'-', U"\u2010\u2011\u2012\u2013\u2212\ufe63"},
    Alikes{"letters yeh", U'\u06cc', U"\u064a"},
    Alikes{"letters kaf", U'\u06a9', U"\u0643"},
    Alikes{"signs micro", U'\u00b5', U"\u03bc"},
};

// A character in a line for --replace: as it is where everybody can read and type it.
std::string readable(char32_t c) {
  if (c > 0x20 && c < 0x7f) return to_utf8(c);
  char number[16];
  std::snprintf(number, sizeof number, "U+%04X", static_cast<unsigned>(c));
  return number;
}

std::string readable_line(char32_t from, char32_t to) {
  return readable(from) + "=" + readable(to);
}

// Of the digits that look as these do, given by their zeros, those that texts hold most.
char32_t usual_digits(char32_t zero, const std::map<char32_t, int64_t>& sets) {
  constexpr char32_t arabic = 0x660, persian = 0x6f0, full_width = 0xff10, mathematical = 0x1d7ce;
  if (zero == full_width || (zero >= mathematical && zero < mathematical + 50)) return U'0';
  if (zero != arabic && zero != persian) return zero;
  const auto count_of = [&](char32_t z) {
    const auto at = sets.find(z);
    return at == sets.end() ? 0 : at->second;
  };
  return count_of(persian) > count_of(arabic) ? persian : arabic;
}

// "(uh)", "*cough*", "+breath+": a word between signs that may mean a noise.
bool is_perhaps_mark(const std::string& word) {
  const std::vector<char32_t> c = code_points(word);
  if (c.size() < 4) return false;
  const bool round = c.front() == U'(' && c.back() == U')';
  const bool signs =
      (c.front() == U'*' || c.front() == U'+' || c.front() == U'#') && c.back() == c.front();
  const auto is_inner = [&](char32_t x) {
    return is_letter(x) || is_combining(x) || x == U'_' || x == U'-' || x == c.front();
  };
  return (round || signs) && is_letter(c[c.size() / 2]) &&
         std::all_of(c.begin() + 1, c.end() - 1, is_inner);
}

// Letters of two scripts that look alike, in one word.
struct MixedWord {
  std::string described;  // 'c\u043emputer' with Cyrillic 'o' (U+043E)
  std::string unified;    // in one script
};

std::optional<std::pair<std::string, std::vector<char32_t>>> in_script(
    const std::vector<char32_t>& word, LikeScript script) {
  std::string text;
  std::vector<char32_t> odd;
  for (const char32_t c : word) {
    const LikeScript own = like_script(c);
    if (own == LikeScript::none || own == script) {
      text += to_utf8(c);
      continue;
    }
    const auto like = look_alike(c, script);
    if (!like) return {};
    text += to_utf8(*like);
    odd.push_back(c);
  }
  return std::pair(text, odd);
}

std::optional<MixedWord> mixed_word(const std::vector<char32_t>& word) {
  std::map<LikeScript, int64_t> scripts;
  for (const char32_t c : word)
    if (const LikeScript s = like_script(c); s != LikeScript::none) ++scripts[s];
  if (scripts.size() < 2) return {};
  std::vector<std::pair<int64_t, LikeScript>> order;
  for (const auto& [script, count] : scripts) order.emplace_back(-count, script);
  std::sort(order.begin(), order.end());
  for (const auto& [count, script] : order) {
    const auto found = in_script(word, script);
    if (!found) continue;
    std::string text;
    for (const char32_t c : word) text += to_utf8(c);
    const char32_t odd = found->second.front();
    return MixedWord{str("'", text, "' with ", name_of(like_script(odd)), " ", describe(odd)),
                     found->first};
  }
  return {};
}

std::string advice_on_marks(const TextRules& rules) {
  switch (rules.marks) {
    case Marks::keep:
      return "--marks drop leaves them out, --marks token makes each a symbol of its own";
    case Marks::drop:
      return {};
    case Marks::token:
      return "train with text.marks=token";
  }
  return {};
}

const char* what_of_marks(Marks marks) {
  return marks == Marks::drop    ? "marks in brackets, left out"
         : marks == Marks::token ? "marks in brackets, each a symbol"
                                 : "marks in brackets, kept as characters";
}

}  // namespace

std::string TextFinding::sentence(int64_t all_texts) const {
  constexpr size_t most = 8;
  std::string text = what;
  if (!first.empty()) text += str(": ", texts, " of ", all_texts, " texts, the first ", first);
  for (size_t i = 0; i < std::min(kinds.size(), most); ++i) {
    text += str(i ? ", " : ": ", kinds[i].first,
                kinds[i].second == 1 ? "" : str(" ", kinds[i].second, " times"));
  }
  if (kinds.size() > most) text += str(" and ", kinds.size() - most, " more");
  return text;
}

struct TextExaminer::State {
  TextRules rules;
  bool of_lines = false;
  int64_t texts = 0;

  Tally marks, perhaps_marks, unseen, private_use, damaged, spaces, decomposed, mixed;
  std::array<bool, 0x80> ascii{};                 // those that occur
  std::map<char32_t, int64_t> characters;         // beyond ASCII, and signs that look alike
  std::map<char32_t, std::string> first_with;     // the same
  std::map<std::string, std::string> one_script;  // words of `mixed`
  int64_t letters = 0, spaceless_letters = 0, words = 0;
  DotlessI dotless_i;
  bool may_be_phones = true;
  std::vector<std::string> some_texts;  // the first ones, to tell phones by

  void look_at_raw(std::string_view text, const std::string& where);
  void look_at_replaced(const std::string& text, const std::string& where);
  void look_at_final(const std::string& text, const std::string& where);

  void find_digits(TextFindings& all) const;
  void find_signs(TextFindings& all) const;
  void find_full_width(TextFindings& all) const;
  void find_letters(TextFindings& all) const;
  void find_spaceless(TextFindings& all) const;
  void find_phones(TextFindings& all) const;
  void find_locale(TextFindings& all) const;
};

void TextExaminer::State::look_at_raw(std::string_view text, const std::string& where) {
  bool plain = true;
  for (const char c : text) plain &= static_cast<signed char>(c) >= 0;
  if (plain) return;
  for (const char32_t c : code_points(text))
    if (is_other_space(c)) spaces.add(describe(c), texts, where);
  if (to_nfc(text) != text) decomposed.add("", texts, where);
}

void TextExaminer::State::look_at_replaced(const std::string& text, const std::string& where) {
  if (text.find_first_of("<[{(\xef") != std::string::npos) {
    for (const TextPiece& p : pieces_of(text))
      if (p.is_mark) marks.add("'" + p.text + "'", texts, where);
  }
  dotless_i.add(text);
  constexpr char32_t replacement = 0xfffd;
  const std::vector<char32_t> points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) {
    const char32_t c = points[i];
    if (c >= 0x20 && c < 0x7f) continue;
    const bool inside = i > 0 && i + 1 < points.size();
    if (is_invisible(c)) {
      if (!inside || !joins_letters(points[i - 1], c, points[i + 1]))
        unseen.add(describe(c), texts, where);
    } else if (is_private_use(c)) {
      private_use.add(describe(c), texts, where);
    } else if (c == replacement) {
      damaged.add("U+FFFD", texts, where);
    }
  }
}

void TextExaminer::State::look_at_final(const std::string& text, const std::string& where) {
  constexpr size_t most_mixed = 1000, most_texts = 2000;
  const auto is_watched = [](char32_t c) {
    return c >= 0x80 || (c >= U'0' && c <= U'9') || c == U'\'' || c == U'"' || c == U'-' ||
           c == U'`';
  };
  bool has_letters_apart = false;
  for (const char32_t c : code_points(text)) {
    if (is_letter(c) || is_combining(c)) {
      ++letters;
      spaceless_letters += is_of_unspaced_script(c);
      has_letters_apart |= c >= 0x370;
    }
    if (c < ascii.size()) ascii[c] = true;
    if (is_watched(c) && ++characters[c] == 1) first_with[c] = where;
  }
  for (const std::string& word : split_words(text)) {
    ++words;
    if (is_perhaps_mark(word)) perhaps_marks.add("'" + word + "'", texts, where);
  }
  if (some_texts.size() < most_texts) some_texts.push_back(text);
  if (!has_letters_apart) return;
  std::vector<char32_t> word;
  const auto take = [&] {
    if (const auto found = word.size() < 2 ? std::nullopt : mixed_word(word)) {
      mixed.add(found->described, texts, where);
      std::string own;
      for (const char32_t c : word) own += to_utf8(c);
      if (one_script.size() < most_mixed) one_script.emplace(own, found->unified);
    }
    word.clear();
  };
  for (const char32_t c : code_points(text)) {
    if (is_letter(c) || is_combining(c)) {
      word.push_back(c);
    } else {
      take();
    }
  }
  take();
}

void TextExaminer::State::find_digits(TextFindings& all) const {
  std::map<char32_t, int64_t> sets;
  for (const auto& [c, count] : characters)
    if (const auto zero = zero_of(c)) sets[*zero] += count;
  if (sets.size() < 2) return;
  const auto rarest = std::min_element(
      sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  TextFinding f;
  f.what = str("digits of ", sets.size(), " kinds");
  for (const auto& [zero, count] : sets) f.kinds.emplace_back(digits_name(zero), count);
  std::stable_sort(f.kinds.begin(), f.kinds.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [c, count] : characters) {
    const auto zero = zero_of(c);
    if (!zero) continue;
    if (*zero == rarest->first && f.advice.empty())
      f.advice = str("the first of the rarest: ", first_with.at(c));
    const char32_t usual = usual_digits(*zero, sets);
    if (usual != *zero) all.replacements.push_back(readable_line(c, usual + (c - *zero)));
  }
  all.findings.push_back(std::move(f));
}

void TextExaminer::State::find_signs(TextFindings& all) const {
  const auto count_of = [&](char32_t c) {
    const auto at = characters.find(c);
    return at == characters.end() ? 0 : at->second;
  };
  for (const Alikes& alike : alike_signs) {
    std::vector<std::pair<int64_t, char32_t>> found;
    if (const int64_t n = count_of(alike.plain)) found.emplace_back(n, alike.plain);
    for (const char32_t c : alike.others)
      if (const int64_t n = count_of(c)) found.emplace_back(n, c);
    // Opening and closing ones are a pair.
    const bool is_pair = std::all_of(found.begin(), found.end(), [](const auto& f) {
      return f.second >= 0x201c && f.second <= 0x201f;
    });
    if (found.size() < 2 || is_pair) continue;
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    TextFinding f;
    f.what = str(alike.what, " that look alike");
    for (const auto& [count, c] : found) f.kinds.emplace_back(describe(c), count);
    f.advice = str("the first of the rarest: ", first_with.at(found.back().second));
    const char32_t wanted = alike.plain < 0x80 ? alike.plain : found.front().second;
    for (const auto& [count, c] : found)
      if (c != wanted) all.replacements.push_back(readable_line(c, wanted));
    all.findings.push_back(std::move(f));
  }
}

void TextExaminer::State::find_full_width(TextFindings& all) const {
  constexpr char32_t first = 0xff01, last = 0xff5e, distance = first - U'!';
  TextFinding f;
  f.what = "full-width characters that stand there in plain form, too";
  for (auto at = characters.lower_bound(first); at != characters.end() && at->first <= last; ++at) {
    const char32_t plain = at->first - distance;
    if (!ascii[plain] || zero_of(at->first)) continue;
    if (f.kinds.empty()) f.advice = "the first: " + first_with.at(at->first);
    f.kinds.emplace_back(describe(at->first), at->second);
    all.replacements.push_back(readable_line(at->first, plain));
  }
  if (!f.kinds.empty()) all.findings.push_back(std::move(f));
}

void TextExaminer::State::find_letters(TextFindings& all) const {
  if (mixed.texts == 0) return;
  all.findings.push_back(mixed.finding("letters of two scripts in one word, which look alike", ""));
  for (const auto& [word, unified] : one_script) all.replacements.push_back(word + "=" + unified);
}

void TextExaminer::State::find_spaceless(TextFindings& all) const {
  constexpr int64_t least_letters_a_word = 5;
  const bool has_spaces = 2 * words > 3 * texts && letters < least_letters_a_word * words;
  if (2 * spaceless_letters <= letters || has_spaces) return;
  all.without_spaces = true;
  TextFinding f;
  f.what = "most letters are of a script that is written without spaces";
  f.advice =
      "a word is what stands between spaces, mostly a whole text: WER says how many of those are "
      "right, and CER is the rate to go by";
  all.findings.push_back(std::move(f));
}

void TextExaminer::State::find_phones(TextFindings& all) const {
  if (of_lines || rules.unit == TextUnit::word || !look_like_phones(some_texts)) return;
  all.like_phones = true;
  TextFinding f;
  f.what = "the texts look like phones: few short words that recur";
  f.advice = "train with text.unit=word: a label is then what stands between spaces";
  all.findings.push_back(std::move(f));
}

void TextExaminer::State::find_locale(TextFindings& all) const {
  if (!rules.puts_dot_on_i() || !dotless_i.matters()) return;
  TextFinding f;
  f.what = dotless_i.found();
  f.advice = "--locale tr makes \u0131 of I in lower case, and i of \u0130";
  all.findings.push_back(std::move(f));
}

TextExaminer::TextExaminer(const TextRules& rules, bool of_lines)
    : state_(std::make_unique<State>()) {
  state_->rules = rules;
  state_->of_lines = of_lines;
}

TextExaminer::~TextExaminer() = default;

void TextExaminer::add(std::string_view text, const std::string& where) {
  State& s = *state_;
  std::string changed, final;
  try {
    changed = replaced(s.rules, text);
    final = apply_rules(s.rules, text);
  } catch (const InputError&) {
    return;
  }
  ++s.texts;
  s.look_at_raw(text, where);
  s.look_at_replaced(changed, where);
  s.look_at_final(final, where);
}

TextFindings TextExaminer::findings() const {
  const State& s = *state_;
  TextFindings all;
  all.texts = s.texts;
  const auto add = [&](const Tally& tally, const char* what, std::string advice) {
    if (tally.texts > 0) all.findings.push_back(tally.finding(what, std::move(advice)));
  };
  add(s.marks, what_of_marks(s.rules.marks), advice_on_marks(s.rules));
  // In print they are what they look like.
  if (!s.of_lines)
    add(s.perhaps_marks, "words between signs, which may be noises",
        "kept as they are; a line of a file for --replace leaves one out: '(uh)='");
  add(s.unseen,
      s.rules.drop_invisible ? "characters without a picture, left out"
                             : "characters without a picture",
      s.rules.drop_invisible ? "" : "--drop-invisible leaves them out");
  add(s.private_use, "characters for private use, which have a picture in fonts of their own alone",
      "a line of a file for --replace leaves one out, U+E000= , or makes it another");
  add(s.damaged, "characters that were lost when the text was converted", "");
  add(s.spaces, "spaces of other kinds, read as plain ones", "");
  if (s.decomposed.texts > 0) {
    TextFinding f = s.decomposed.finding("letters and accents apart, read as one (NFC)", "");
    f.kinds.clear();
    all.findings.push_back(std::move(f));
  }
  s.find_digits(all);
  s.find_signs(all);
  s.find_full_width(all);
  s.find_letters(all);
  s.find_spaceless(all);
  s.find_phones(all);
  s.find_locale(all);
  return all;
}

}  // namespace rondo
