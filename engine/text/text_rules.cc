#include "engine/text/text_rules.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "engine/data/features/files.h"
#include "engine/text/unicode.h"
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

bool is_letter_or_digit(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NO;
}

std::vector<char32_t> without_punctuation(const std::vector<char32_t>& text) {
  std::vector<char32_t> kept;
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    const bool inside = i > 0 && i + 1 < text.size() && is_letter_or_digit(text[i - 1]) &&
                        is_letter_or_digit(text[i + 1]);
    const bool apostrophe = c == U'\'' || c == U'\u2019';
    if (!is_punctuation(c) || (apostrophe && inside)) {
      kept.push_back(c);
    } else if (category_of(c) == UTF8PROC_CATEGORY_PD || category_of(c) == UTF8PROC_CATEGORY_PC) {
      kept.push_back(U' ');
    }
  }
  return kept;
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
  return TextReplacement{to_nfc(text.substr(0, equals)), to_nfc(text.substr(equals + 1))};
}

std::string apply_rules(const TextRules& rules, std::string_view text) {
  std::string normal = normalize_transcript(text);
  if (!rules.any()) return normal;
  for (const TextReplacement& r : rules.replace) replace_all(normal, r);
  if (rules.compatibility) normal = compatible(normal);
  std::vector<char32_t> points = code_points(normal);
  if (rules.strip_punctuation) points = without_punctuation(points);
  std::string changed;
  for (char32_t c : points) {
    if (rules.lowercase) {
      c = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    }
    if (c < 0x80) {
      changed += static_cast<char>(c);
    } else {
      changed += to_utf8(c);
    }
  }
  return normalize_transcript(changed);
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
  const std::string_view text = data::without_byte_order_mark(content);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto replacement = TextReplacement::parse(line);
    if (!replacement) fail_input(file, ":", number, ": is '", line, "', expected FROM=TO");
    replacements.push_back(*replacement);
  }
  return replacements;
}

}  // namespace rondo
