#include "engine/text/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "engine/text/unicode.h"

namespace rondo {
namespace {

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

struct Range {
  char32_t first, last;
};

template <size_t N>
bool is_in(const Range (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const Range& r) { return c >= r.first && c <= r.last; });
}

// They stand under or around the digits behind them.
bool is_seen_format(char32_t c) {
  constexpr Range seen[] = {{0x600, 0x605}, {0x6dd, 0x6dd},     {0x70f, 0x70f},    {0x890, 0x891},
                            {0x8e2, 0x8e2}, {0x110bd, 0x110bd}, {0x110cd, 0x110cd}};
  return is_in(seen, c);
}

struct Named {
  Range range;
  const char* name;
};

constexpr Named unseen[] = {{{0x0, 0x1f}, "control"},
                            {{0x7f, 0x9f}, "control"},
                            {{0xa0, 0xa0}, "no-break space"},
                            {{0xad, 0xad}, "soft hyphen"},
                            {{0x34f, 0x34f}, "combining grapheme joiner"},
                            {{0x61c, 0x61c}, "Arabic letter mark"},
                            {{0x115f, 0x1160}, "Hangul filler"},
                            {{0x1680, 0x1680}, "Ogham space"},
                            {{0x17b4, 0x17b5}, "Khmer vowel without a picture"},
                            {{0x180b, 0x180d}, "Mongolian variation selector"},
                            {{0x180e, 0x180e}, "Mongolian vowel separator"},
                            {{0x180f, 0x180f}, "Mongolian variation selector"},
                            {{0x2000, 0x2001}, "quad"},
                            {{0x2002, 0x2002}, "en space"},
                            {{0x2003, 0x2003}, "em space"},
                            {{0x2004, 0x2006}, "part of an em space"},
                            {{0x2007, 0x2007}, "figure space"},
                            {{0x2008, 0x2008}, "punctuation space"},
                            {{0x2009, 0x2009}, "thin space"},
                            {{0x200a, 0x200a}, "hair space"},
                            {{0x200b, 0x200b}, "zero-width space"},
                            {{0x200c, 0x200c}, "zero-width non-joiner"},
                            {{0x200d, 0x200d}, "zero-width joiner"},
                            {{0x200e, 0x200e}, "left-to-right mark"},
                            {{0x200f, 0x200f}, "right-to-left mark"},
                            {{0x2028, 0x2028}, "line separator"},
                            {{0x2029, 0x2029}, "paragraph separator"},
                            {{0x202a, 0x202e}, "direction of text"},
                            {{0x202f, 0x202f}, "narrow no-break space"},
                            {{0x205f, 0x205f}, "mathematical space"},
                            {{0x2060, 0x2060}, "word joiner"},
                            {{0x2061, 0x2064}, "invisible operator"},
                            {{0x2066, 0x2069}, "direction of text"},
                            {{0x206a, 0x206f}, "format control"},
                            {{0x2800, 0x2800}, "empty braille cell"},
                            {{0x3000, 0x3000}, "ideographic space"},
                            {{0x3164, 0x3164}, "Hangul filler"},
                            {{0xfe00, 0xfe0f}, "variation selector"},
                            {{0xfeff, 0xfeff}, "byte order mark"},
                            {{0xffa0, 0xffa0}, "Hangul filler"},
                            {{0xfff9, 0xfffb}, "annotation"},
                            {{0xfffc, 0xfffc}, "place of an object"},
                            {{0xfffd, 0xfffd}, "for what could not be read"},
                            {{0xe0000, 0xe007f}, "tag"},
                            {{0xe0100, 0xe01ef}, "variation selector"}};

struct Digits {
  char32_t zero;
  const char* name;
};

constexpr Digits known_digits[] = {
    {0x30, "plain"},    {0x660, "Arabic-Indic"}, {0x6f0, "Persian"},    {0x966, "Devanagari"},
    {0x9e6, "Bengali"}, {0xa66, "Gurmukhi"},     {0xae6, "Gujarati"},   {0xb66, "Oriya"},
    {0xbe6, "Tamil"},   {0xc66, "Telugu"},       {0xce6, "Kannada"},    {0xd66, "Malayalam"},
    {0xe50, "Thai"},    {0xed0, "Lao"},          {0xf20, "Tibetan"},    {0x1040, "Myanmar"},
    {0x17e0, "Khmer"},  {0x1810, "Mongolian"},   {0xff10, "full-width"}};

struct Alike {
  char32_t latin, greek, cyrillic;  // 0: none
};

constexpr Alike alikes[] = {
    {U'A', 0x391, 0x410}, {U'B', 0x392, 0x412}, {U'C', 0, 0x421},     {U'E', 0x395, 0x415},
    {U'H', 0x397, 0x41d}, {U'I', 0x399, 0x406}, {U'J', 0, 0x408},     {U'K', 0x39a, 0x41a},
    {U'M', 0x39c, 0x41c}, {U'N', 0x39d, 0},     {U'O', 0x39f, 0x41e}, {U'P', 0x3a1, 0x420},
    {U'S', 0, 0x405},     {U'T', 0x3a4, 0x422}, {U'X', 0x3a7, 0x425}, {U'Y', 0x3a5, 0x4ae},
    {U'Z', 0x396, 0},     {U'a', 0, 0x430},     {U'c', 0, 0x441},     {U'd', 0, 0x501},
    {U'e', 0, 0x435},     {U'h', 0, 0x4bb},     {U'i', 0, 0x456},     {U'j', 0, 0x458},
    {U'o', 0x3bf, 0x43e}, {U'p', 0, 0x440},     {U's', 0, 0x455},     {U'v', 0x3bd, 0},
    {U'x', 0, 0x445},     {U'y', 0, 0x443},     {0xcb, 0, 0x401},     {0xcf, 0x3aa, 0x407},
    {0xeb, 0, 0x451},     {0xef, 0, 0x457},     {0xf3, 0x3cc, 0}};

char32_t of_script(const Alike& a, LikeScript script) {
  switch (script) {
    case LikeScript::latin:
      return a.latin;
    case LikeScript::greek:
      return a.greek;
    case LikeScript::cyrillic:
      return a.cyrillic;
    case LikeScript::none:
      return 0;
  }
  return 0;
}

}  // namespace

bool is_letter(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_combining(char32_t c) {
  const utf8proc_category_t k = category_of(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

bool is_invisible(char32_t c) {
  if (c >= 0x20 && c < 0x7f) return false;
  if (is_white_space(c)) return false;
  const utf8proc_category_t k = category_of(c);
  if (k == UTF8PROC_CATEGORY_CF) return !is_seen_format(c);
  constexpr char32_t empty_braille = 0x2800;
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CN || c == empty_braille ||
         utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->ignorable;
}

bool is_private_use(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_CO; }

bool is_other_space(char32_t c) { return c > 0x20 && c != 0x85 && is_white_space(c); }

bool joins_letters(char32_t before, char32_t c, char32_t behind) {
  if (c != 0x200c && c != 0x200d) return false;
  // Arabic, Syriac, N'Ko and others; scripts of India; Myanmar; Khmer, Mongolian; Balinese and
  // others.
  constexpr Range joining[] = {
      {0x600, 0xdff}, {0x1000, 0x109f}, {0x1780, 0x18af}, {0x1b00, 0x1bff}, {0xa840, 0xa8ff}};
  const auto is_joined = [&](char32_t l) {
    return (is_letter(l) || is_combining(l)) && is_in(joining, l);
  };
  return is_joined(before) && is_joined(behind);
}

std::string_view name_of_unseen(char32_t c) {
  for (const Named& n : unseen)
    if (c >= n.range.first && c <= n.range.last) return n.name;
  if (is_private_use(c)) return "private use";
  return category_of(c) == UTF8PROC_CATEGORY_CN ? "not assigned" : "";
}

bool is_of_unspaced_script(char32_t c) {
  // Unicode's blocks, in their order.
  constexpr Range blocks[] = {
      {0x0e00, 0x0e7f},    // Thai
      {0x0e80, 0x0eff},    // Lao
      {0x0f00, 0x0fff},    // Tibetan
      {0x1000, 0x109f},    // Myanmar
      {0x1780, 0x17ff},    // Khmer
      {0x1950, 0x197f},    // Tai Le
      {0x1980, 0x19df},    // New Tai Lue
      {0x19e0, 0x19ff},    // Khmer's symbols
      {0x1a20, 0x1aaf},    // Tai Tham
      {0x1b00, 0x1b7f},    // Balinese
      {0x2e80, 0x2fdf},    // radicals of Han
      {0x3005, 0x3007},    // iteration mark, closing mark, zero of Han
      {0x3021, 0x3029},    // numerals
      {0x3031, 0x3035},    // repeat marks of kana
      {0x3038, 0x303c},    // numerals, iteration marks
      {0x3040, 0x30ff},    // hiragana and katakana
      {0x3100, 0x312f},    // bopomofo
      {0x31a0, 0x31bf},    // bopomofo
      {0x31f0, 0x31ff},    // katakana
      {0x3400, 0x4dbf},    // Han, extension A
      {0x4e00, 0x9fff},    // Han
      {0xa000, 0xa4cf},    // Yi
      {0xa980, 0xa9df},    // Javanese
      {0xa9e0, 0xa9ff},    // Myanmar
      {0xaa60, 0xaa7f},    // Myanmar
      {0xaa80, 0xaadf},    // Tai Viet
      {0xf900, 0xfaff},    // Han, compatibility
      {0xff66, 0xff9f},    // katakana of half width
      {0x11700, 0x1174f},  // Ahom
      {0x16fe0, 0x18d8f},  // marks of Han, Tangut, Khitan
      {0x1aff0, 0x1b2ff},  // kana, Nushu
      {0x20000, 0x3ffff},  // Han, further extensions
  };
  return c >= blocks[0].first && is_in(blocks, c) && (is_letter(c) || is_combining(c));
}

std::optional<char32_t> zero_of(char32_t digit) {
  const auto is_decimal = [](char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; };
  if (!is_decimal(digit)) return {};
  // Sets of digits follow each other without a gap in a few places.
  char32_t first = digit;
  while (first > 0 && is_decimal(first - 1)) --first;
  return first + (digit - first) / 10 * 10;
}

std::string digits_name(char32_t zero) {
  char text[64];
  const auto known = std::find_if(std::begin(known_digits), std::end(known_digits),
                                  [&](const Digits& d) { return d.zero == zero; });
  const char* const name = known == std::end(known_digits) ? "others" : known->name;
  std::snprintf(text, sizeof text, "%s (U+%04X to U+%04X)", name, static_cast<unsigned>(zero),
                static_cast<unsigned>(zero + 9));
  return text;
}

LikeScript like_script(char32_t c) {
  if (!is_letter(c)) return LikeScript::none;
  constexpr Range latin[] = {{U'A', U'z'},     {0xaa, 0x24f},    {0x1e00, 0x1eff},
                             {0x2c60, 0x2c7f}, {0xa720, 0xa7ff}, {0xfb00, 0xfb06}};
  constexpr Range greek[] = {{0x370, 0x3ff}, {0x1f00, 0x1fff}};
  constexpr Range cyrillic[] = {{0x400, 0x52f}, {0x1c80, 0x1c8f}, {0xa640, 0xa69f}};
  if (is_in(latin, c)) return LikeScript::latin;
  if (is_in(greek, c)) return LikeScript::greek;
  return is_in(cyrillic, c) ? LikeScript::cyrillic : LikeScript::none;
}

const char* name_of(LikeScript script) {
  switch (script) {
    case LikeScript::latin:
      return "Latin";
    case LikeScript::greek:
      return "Greek";
    case LikeScript::cyrillic:
      return "Cyrillic";
    case LikeScript::none:
      return "no";
  }
  return "no";
}

std::optional<char32_t> look_alike(char32_t letter, LikeScript script) {
  const LikeScript own = like_script(letter);
  if (own == LikeScript::none) return {};
  for (const Alike& a : alikes) {
    if (of_script(a, own) != letter) continue;
    const char32_t found = of_script(a, script);
    if (found) return found;
  }
  return {};
}

}  // namespace rondo
