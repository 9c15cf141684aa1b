// The order in which a line of a right-to-left script is read from its right edge to its left one.
//
// Texts are in logical order: as they are spoken and typed. Letters of a right-to-left script are
// met in that order. Numbers, and words in scripts that are written from left to right, stand in
// the line the other way: from its right edge, their last character is met first.
//
// From the text to the line the rules are those of the Unicode Bidirectional Algorithm (Unicode
// Standard Annex #9) for a paragraph from right to left: W1 to W7, N0 to N2, I2, L1 and L2. Two
// things differ. Marks and invisible characters stay behind their letters, as L3 asks only of
// letters written from right to left; explicit embeddings, overrides and isolates are such
// invisible characters. Brackets keep the character of the text (no L4).
//
// From the line to the text: several texts may look the same. A number beside a left-to-right word
// is then taken as a part of its phrase, and brackets as pairs, where that is possible. Some lines
// are those of no text, such as a left-to-right phrase that begins with a number ("2 words"), which
// UAX #9 would show as two. Their phrases are turned round as a whole.
//
// Thread safety: pure functions. Errors: InputError for text that is not UTF-8.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Where the characters that are met one after the other stand in the text: a permutation.
std::vector<size_t> leftward_order(std::span<const char32_t> text);
// The way back. Where the characters of a text stand among those that are met: the leftward order
// of that text is `met`, if that of any text is. Between two letters written leftwards such a text
// is found for sure where at most eight characters are neither letters nor digits; among more signs
// and brackets it may be missed.
std::vector<size_t> logical_order(std::span<const char32_t> met);

std::string in_leftward_order(std::string_view text);
std::string in_logical_order(std::string_view met);

// Whether it is a letter of a right-to-left script, or of a left-to-right one.
bool is_written_leftwards(char32_t c);
bool is_written_rightwards(char32_t c);

// The bracket that closes what `c` opens, or 0: Bidi_Paired_Bracket of the Unicode Character
// Database.
char32_t closing_bracket(char32_t c);

}  // namespace rondo
