// The order in which a line that is written from right to left is read from its right edge to its
// left one.
//
// Texts are in logical order: as they are spoken and typed. Letters of a right-to-left script are
// met in that order. Numbers, and words in scripts that are written from left to right, stand in
// the line the other way: from its right edge, their last character is met first.
//
// The rule: from the first to the last of left-to-right letters and digits between which there is
// no right-to-left letter, the characters are turned round, with the signs (%, currencies) at
// either end. Where there is no left-to-right letter, each number is turned by itself:
// digits and signs, with single separators (. , / : + -) between. Marks stay behind their letters.
// Turned round twice a text is what it was.
//
// That is what the Unicode Bidirectional Algorithm (UAX #9) shows of plain lines in a right-to-left
// paragraph, but for a number before a left-to-right word, which it shows on the word's right (of a
// line alone that cannot be told from a number behind it), and for signs at letters.
//
// Thread safety: pure functions. Errors: InputError for text that is not UTF-8.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Where the characters that are met one after the other stand in the text: a permutation, which is
// its own inverse.
std::vector<size_t> leftward_order(std::span<const char32_t> text);

std::string in_leftward_order(std::string_view text);

// Whether it is a letter of a right-to-left script, or of a left-to-right one.
bool is_written_leftwards(char32_t c);
bool is_written_rightwards(char32_t c);

}  // namespace rondo
