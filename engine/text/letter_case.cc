#include "engine/text/letter_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr char32_t dotted_capital = 0x130, dotless = 0x131, dot_above = 0x307;
constexpr char32_t capital_sigma = 0x3a3, final_sigma = 0x3c2;

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_cased(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

// What may stand within a word without ending it (Case_Ignorable).
bool is_passed_over(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:\u00b7\u0387\u2018\u2019\u2024\u2027").find(c) !=
             std::u32string_view::npos;
  }
}

// Final_Sigma of the Unicode Standard, section 3.13: behind a letter and before none.
bool ends_word(const std::vector<char32_t>& text, size_t at) {
  const auto is_letter_next = [](auto first, auto last) {
    const auto next = std::find_if_not(first, last, is_passed_over);
    return next != last && is_cased(*next);
  };
  const auto here = text.begin() + static_cast<ptrdiff_t>(at);
  return is_letter_next(std::make_reverse_iterator(here), text.rend()) &&
         !is_letter_next(here + 1, text.end());
}

void append(std::string& text, utf8proc_int32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else {
    text += to_utf8(static_cast<char32_t>(c));
  }
}

}  // namespace

std::optional<TextLocale> TextLocale::parse(std::string_view tag) {
  if (tag.empty()) return TextLocale{};
  const size_t language = std::min(tag.find_first_of("-_"), tag.size());
  if (language < 2 || language > 3) return std::nullopt;
  bool behind_separator = false;
  for (size_t i = 0; i < tag.size(); ++i) {
    const bool separator = tag[i] == '-' || tag[i] == '_';
    const bool digit = tag[i] >= '0' && tag[i] <= '9';
    if (!separator && !is_ascii_letter(tag[i]) && !(digit && i > language)) return std::nullopt;
    if (separator && behind_separator) return std::nullopt;
    behind_separator = separator;
  }
  if (behind_separator) return std::nullopt;
  return TextLocale{std::string(tag)};
}

bool TextLocale::has_dotless_i() const {
  std::string language = tag.substr(0, tag.find_first_of("-_"));
  for (char& c : language) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return language == "tr" || language == "az" || language == "tur" || language == "aze";
}

void DotlessI::add(std::string_view text) {
  // U+0130 and U+0131 in UTF-8.
  constexpr char first = '\xc4', dotted = '\xb0', without_dot = '\xb1';
  for (size_t i = 0; i < text.size(); ++i) {
    capitals_ += text[i] == 'I';
    if (text[i] != first || i + 1 == text.size()) continue;
    letters_ += text[i + 1] == dotted || text[i + 1] == without_dot;
  }
}

void DotlessI::add(const DotlessI& others) {
  letters_ += others.letters_;
  capitals_ += others.capitals_;
}

std::string DotlessI::found() const {
  return str("letters of Turkish or Azeri, \u0130 or \u0131, ", letters_,
             letters_ == 1 ? " time" : " times");
}

std::string to_lower(std::string_view text, const TextLocale& locale) {
  const bool dotless_i = locale.has_dotless_i();
  const std::vector<char32_t> points = code_points(text);
  std::string lower;
  for (size_t i = 0; i < points.size(); ++i) {
    char32_t c = points[i];
    if (dotless_i && c == U'I') {
      const bool dotted = i + 1 < points.size() && points[i + 1] == dot_above;
      c = dotted ? U'i' : dotless;
      i += dotted;
    } else if (c == capital_sigma && ends_word(points, i)) {
      c = final_sigma;
    }
    append(lower, utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
  return lower;
}

std::string to_upper(std::string_view text, const TextLocale& locale) {
  const bool dotless_i = locale.has_dotless_i();
  std::string upper;
  for (char32_t c : code_points(text)) {
    if (dotless_i && c == U'i') c = dotted_capital;
    append(upper, utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
  }
  return upper;
}

}  // namespace rondo
