#include "engine/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "engine/data/features/files.h"
#include "engine/io/file.h"
#include "engine/text/characters.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Calls f(code point, offset) for each; throws InputError at the first invalid byte.
template <class F>
void for_each_code_point(std::string_view text, F&& f) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    if (bytes[at] < 0x80) {
      f(static_cast<char32_t>(bytes[at]), at);
      ++at;
      continue;
    }
    utf8proc_int32_t c = -1;
    const auto n =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (n <= 0) {
      char byte[8];
      std::snprintf(byte, sizeof byte, "0x%02x", bytes[at]);
      fail_input("text is not valid UTF-8: byte ", byte, " at offset ", at);
    }
    f(static_cast<char32_t>(c), at);
    at += static_cast<size_t>(n);
  }
}

std::string normalised(std::string_view text, utf8proc_option_t form) {
  utf8proc_uint8_t* out = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), &out,
                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  if (n < 0) fail_input("text cannot be normalised: ", utf8proc_errmsg(n));
  return std::string(reinterpret_cast<const char*>(out), static_cast<size_t>(n));
}

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<signed char>(c) >= 0; });
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // Below the combining marks everything is in normal form (UAX #15, section 9: quick check).
  constexpr char32_t first_mark = 0x300;
  bool plain = true;
  for_each_code_point(text, [&](char32_t c, size_t) { plain = plain && c < first_mark; });
  return plain ? std::string(text) : normalised(text, UTF8PROC_COMPOSE);
}

std::string to_nfd(std::string_view text) {
  for_each_code_point(text, [](char32_t, size_t) {});
  return normalised(text, UTF8PROC_DECOMPOSE);
}

std::string normalize_transcript(std::string_view text) {
  std::string out;
  for (const std::string& word : split_words(to_nfc(text))) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

std::string replace_broken_utf8(std::string_view text) {
  std::string sound;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = -1;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    const auto n = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (n > 0) {
      sound.append(text, at, static_cast<size_t>(n));
      at += static_cast<size_t>(n);
      continue;
    }
    sound += "\ufffd";
    const size_t announced = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : bytes[0] >= 0xc0 ? 2 : 1;
    const size_t end = std::min(at + announced, text.size());
    for (++at; at < end && (text[at] & 0xc0) == 0x80;) ++at;
  }
  return sound;
}

bool is_utf8(std::string_view text) {
  try {
    for_each_code_point(text, [](char32_t, size_t) {});
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for_each_code_point(text, [&](char32_t c, size_t) { out.push_back(c); });
  return out;
}

std::string to_utf8(char32_t code_point) {
  utf8proc_uint8_t buffer[4];
  RONDO_CHECK(utf8proc_codepoint_valid(static_cast<utf8proc_int32_t>(code_point)), "code point ",
              static_cast<uint32_t>(code_point), " does not exist");
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  return std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  text = without_byte_order_mark(text);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  size_t begin = std::string_view::npos;
  for_each_code_point(text, [&](char32_t c, size_t at) {
    if (is_white_space(c)) {
      if (begin != std::string_view::npos) words.emplace_back(text.substr(begin, at - begin));
      begin = std::string_view::npos;
    } else if (begin == std::string_view::npos) {
      begin = at;
    }
  });
  if (begin != std::string_view::npos) words.emplace_back(text.substr(begin));
  return words;
}

bool continues_character(char32_t before, char32_t code_point) {
  return !utf8proc_grapheme_break(static_cast<utf8proc_int32_t>(before),
                                  static_cast<utf8proc_int32_t>(code_point));
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::string describe(char32_t code_point) {
  char number[16];
  std::snprintf(number, sizeof number, "U+%04X", static_cast<unsigned>(code_point));
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  const bool printable = category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_CC &&
                         category != UTF8PROC_CATEGORY_ZL && category != UTF8PROC_CATEGORY_ZP &&
                         category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_ME;
  const std::string_view name = name_of_unseen(code_point);
  if (!printable || is_invisible(code_point) || is_other_space(code_point))
    return name.empty() ? number : str(number, " (", name, ")");
  return str("'", to_utf8(code_point), "' (", number, ")");
}

std::string composed_name(const std::string& path) {
  const size_t name = path.rfind('/') + 1;
  if (is_ascii(path) || !is_utf8(path)) return path;
  return path.substr(0, name) + to_nfc(path.substr(name));
}

std::string path_in_any_form(const std::string& path) {
  if (is_ascii(path) || is_there(path) || !is_utf8(path)) return path;
  for (std::string other : {to_nfc(path), to_nfd(path)})
    if (is_there(other)) return other;
  return path;
}

}  // namespace rondo
