// What characters are to somebody who looks at a text: letters, digits, nothing at all.
//
// Sources: general categories and Default_Ignorable_Code_Point of the Unicode Character Database,
// by utf8proc; blocks of the Unicode Standard.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rondo {

bool is_letter(char32_t c);     // general category L
bool is_digit(char32_t c);      // N: digits, and other numbers
bool is_combining(char32_t c);  // M

// Has no picture: zero-width characters, directional marks, soft hyphens, variation selectors,
// controls, what is not assigned. Spaces, and what is for private use, are others.
bool is_invisible(char32_t c);
// Has a picture only in fonts of its own.
bool is_private_use(char32_t c);
// A space other than U+0020, tab and line ends. It is read as a space (normalize_transcript).
bool is_other_space(char32_t c);
// U+200C and U+200D join and part letters of Arabic, of India and others: whether they do here.
bool joins_letters(char32_t before, char32_t c, char32_t behind);

// What people call it, "zero-width space"; empty where it is a letter like others.
std::string_view name_of_unseen(char32_t c);

// A letter, or what belongs to one, of a script whose words stand side by side without spaces: Han,
// kana, bopomofo, Yi, Thai, Lao, Khmer, Myanmar, Tibetan and their like. (Of UAX #14 the letters of
// line breaking classes ID and SA, and Tibetan, whose marks divide syllables.) Hangul has spaces.
bool is_of_unspaced_script(char32_t c);

// The 0 of the ten digits that a decimal digit is one of.
std::optional<char32_t> zero_of(char32_t digit);
std::string digits_name(char32_t zero);  // "Persian (U+06F0 to U+06F9)"

// Scripts of which letters look alike.
enum class LikeScript : uint8_t { none, latin, greek, cyrillic };
LikeScript like_script(char32_t letter);
const char* name_of(LikeScript script);
// The letter of a script that looks as this one does.
std::optional<char32_t> look_alike(char32_t letter, LikeScript script);

}  // namespace rondo
