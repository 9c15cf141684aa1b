#include "engine/text/text_rules.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/data/features/files.h"
#include "engine/text/characters.h"
#include "engine/text/marks.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_punctuation(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c) || is_combining(c); }

bool is_bracket_or_quote(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return c == U'"' || (k >= UTF8PROC_CATEGORY_PS && k <= UTF8PROC_CATEGORY_PF);
}

bool is_dash(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_PD; }

bool is_minus(char32_t c) {
  return std::u32string_view(U"-\u2010\u2011\u2012\u2013\ufe63\uff0d").find(c) !=
         std::u32string_view::npos;
}

bool is_per_cent(char32_t c) {
  return std::u32string_view(U"%\u2030\u2031\u066a\ufe6a\uff05").find(c) !=
         std::u32string_view::npos;
}

// A text without punctuation, but for that of words and numbers.
class Stripper {
 public:
  explicit Stripper(const std::vector<char32_t>& text) : text_(text) {}

  std::vector<char32_t> run() {
    for (size_t i = 0; i < text_.size(); ++i) {
      const char32_t c = text_[i];
      if (!is_punctuation(c) || is_of_word(i) || is_of_number(i)) {
        kept_.push_back(c);
      } else if (is_dash(c) || category_of(c) == UTF8PROC_CATEGORY_PC || parts_numbers(i)) {
        kept_.push_back(U' ');
      }
    }
    return std::move(kept_);
  }

 private:
  // 0: there is none.
  char32_t at(size_t i) const { return i < text_.size() ? text_[i] : 0; }
  char32_t before(size_t i) const { return i > 0 ? text_[i - 1] : 0; }

  bool is_of_word(size_t i) const {
    const bool apostrophe = text_[i] == U'\'' || text_[i] == U'\u2019';
    return apostrophe && is_letter_or_digit(before(i)) && is_letter_or_digit(at(i + 1));
  }

  bool is_of_number(size_t i) const {
    const char32_t c = text_[i];
    if (is_per_cent(c)) {
      const bool spaced = before(i) == U' ' && i > 1 && is_digit(text_[i - 2]);
      return spaced || is_digit(before(i)) || is_digit(at(i + 1));
    }
    if (is_digit(before(i)) && is_digit(at(i + 1))) return !is_bracket_or_quote(c);
    if (is_minus(c)) return opens_number(i + 1, true) && stands_free(i);
    return is_point(c) && is_digit(at(i + 1)) && (stands_free(i) || is_minus(before(i)));
  }

  static bool is_point(char32_t c) { return c == U'.' || c == U'\u066b'; }
  static bool is_currency(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_SC; }

  bool opens_number(size_t i, bool may_be_currency) const {
    if (may_be_currency && is_currency(at(i))) return opens_number(i + 1, false);
    return is_digit(at(i)) || (is_point(at(i)) && is_digit(at(i + 1)));
  }

  // What is at `i` goes on with no word and no number.
  bool stands_free(size_t i) const {
    const char32_t c = before(i);
    return c == 0 || is_white_space(c) || is_bracket_or_quote(c) || is_currency(c) ||
           category_of(c) == UTF8PROC_CATEGORY_SM;
  }

  // Without what goes here two numbers would be one. Of several signs in a row the first tells.
  bool parts_numbers(size_t i) {
    if (i < end_of_signs_ || kept_.empty() || !is_digit(kept_.back())) return false;
    for (end_of_signs_ = i; end_of_signs_ < text_.size(); ++end_of_signs_)
      if (!is_punctuation(text_[end_of_signs_])) break;
    return is_digit(at(end_of_signs_));
  }

  const std::vector<char32_t>& text_;
  std::vector<char32_t> kept_;
  size_t end_of_signs_ = 0;
};

std::vector<char32_t> without_invisible(const std::vector<char32_t>& text) {
  constexpr char32_t soft_hyphen = 0xad;
  std::vector<char32_t> kept;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool last = i + 1 == text.size();
    if (!is_invisible(text[i]) ||
        (i > 0 && !last && joins_letters(text[i - 1], text[i], text[i + 1]))) {
      kept.push_back(text[i]);
    } else if (text[i] == soft_hyphen && last && !kept.empty()) {
      kept.push_back(U'-');
    }
  }
  return kept;
}

std::string utf8_of(const std::vector<char32_t>& points) {
  std::string text;
  for (const char32_t c : points) {
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += to_utf8(c);
    }
  }
  return text;
}

std::string compatible(const std::string& text) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  if (n < 0) fail_input("text: ", utf8proc_errmsg(n));
  const std::string result(reinterpret_cast<const char*>(mapped), static_cast<size_t>(n));
  std::free(mapped);
  return result;
}

// What is not within marks.
std::string apply_to_words(const TextRules& rules, const std::string& text) {
  std::string changed = rules.strip_punctuation ? utf8_of(Stripper(code_points(text)).run()) : text;
  return rules.lowercase ? to_lower(changed, rules.locale) : changed;
}

// "U+0041 U+0301" stands for these characters; other texts for themselves.
std::string spelled(std::string_view text) {
  std::string characters;
  if (text.ends_with(' ')) return std::string(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view code = text.substr(at, end - at);
    uint32_t value = 0;
    const char* const last = code.data() + code.size();
    if (code.size() < 6 || code.size() > 8 || !code.starts_with("U+")) return std::string(text);
    const auto [stop, error] = std::from_chars(code.data() + 2, last, value, 16);
    if (error != std::errc() || stop != last || value == 0 ||
        !utf8proc_codepoint_valid(static_cast<utf8proc_int32_t>(value))) {
      return std::string(text);
    }
    characters += to_utf8(static_cast<char32_t>(value));
    at = end + 1;
  }
  return characters;
}

std::string as_code_points(std::string_view text) {
  std::string codes;
  for (const char32_t c : code_points(text)) {
    char number[16];
    std::snprintf(number, sizeof number, "U+%04X", static_cast<unsigned>(c));
    if (!codes.empty()) codes += ' ';
    codes += number;
  }
  return codes;
}

void replace_all(std::string& text, const TextReplacement& r) {
  for (size_t at = text.find(r.from); at != std::string::npos;
       at = text.find(r.from, at + r.to.size())) {
    text.replace(at, r.from.size(), r.to);
  }
}

}  // namespace

std::optional<TextReplacement> TextReplacement::parse(std::string_view text) {
  const size_t equals = text.find('=', 1);
  if (text.empty() || equals == std::string_view::npos) return std::nullopt;
  return TextReplacement{to_nfc(spelled(text.substr(0, equals))),
                         to_nfc(spelled(text.substr(equals + 1)))};
}

std::string TextReplacement::text() const {
  // What would be read as something else is written as code points.
  const bool is_plain = from.find('=', 1) == std::string::npos && spelled(from) == from;
  return (is_plain ? from : as_code_points(from)) + "=" +
         (spelled(to) == to ? to : as_code_points(to));
}

std::string replaced(const TextRules& rules, std::string_view text) {
  std::string normal = normalize_transcript(text);
  for (const TextReplacement& r : rules.replace) replace_all(normal, r);
  return normal;
}

std::string apply_rules(const TextRules& rules, std::string_view text) {
  if (!rules.any()) return normalize_transcript(text);
  std::string changed = replaced(rules, text);
  if (rules.compatibility) changed = compatible(changed);
  if (rules.drop_invisible) changed = utf8_of(without_invisible(code_points(changed)));
  if (rules.marks == Marks::drop) changed = without_marks(changed);
  if (rules.marks != Marks::token) return normalize_transcript(apply_to_words(rules, changed));
  std::string whole;
  for (const TextPiece& p : pieces_of(changed))
    whole += p.is_mark ? p.text : apply_to_words(rules, p.text);
  return normalize_transcript(whole);
}

TextRules both(const TextRules& first, const TextRules& second) {
  TextRules all = first;
  all.lowercase |= second.lowercase;
  all.strip_punctuation |= second.strip_punctuation;
  all.compatibility |= second.compatibility;
  all.drop_invisible |= second.drop_invisible;
  all.replace.insert(all.replace.end(), second.replace.begin(), second.replace.end());
  if (second.marks != Marks::keep) all.marks = second.marks;
  if (!second.locale.tag.empty()) all.locale = second.locale;
  return all;
}

std::vector<TextReplacement> never_found(const std::vector<TextReplacement>& replace,
                                         const std::vector<std::string>& texts) {
  std::vector<bool> found(replace.size());
  for (const std::string& text : texts) {
    std::string normal = normalize_transcript(text);
    for (size_t i = 0; i < replace.size(); ++i) {
      if (normal.find(replace[i].from) == std::string::npos) continue;
      found[i] = true;
      replace_all(normal, replace[i]);
    }
  }
  std::vector<TextReplacement> missing;
  for (size_t i = 0; i < replace.size(); ++i) {
    if (!found[i]) missing.push_back(replace[i]);
  }
  return missing;
}

std::vector<TextReplacement> read_replacements(const std::string& file) {
  std::vector<TextReplacement> replacements;
  const std::string content = data::read_regular_file(file);
  int64_t number = 0;
  for (const std::string_view line : split_lines(content)) {
    ++number;
    if (line.empty()) continue;
    const auto replacement = TextReplacement::parse(line);
    if (!replacement)
      fail_input(file, ":", number, ": is ", quoted_start(line), ", expected FROM=TO");
    replacements.push_back(*replacement);
  }
  return replacements;
}

}  // namespace rondo
