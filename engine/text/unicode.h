// UTF-8 text as the rest of the engine wants it: valid, normalised, split.
//
// Algorithms: Unicode Standard Annex #15 (normal form C), by utf8proc; White_Space property of
// the Unicode Character Database.
// Thread safety: pure functions. Errors: InputError when the text is not valid UTF-8; the message
// names the byte offset.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Normal form C: "e" + combining acute becomes U+00E9. Characters without a composed form stay
// several code points.
std::string to_nfc(std::string_view text);

// Normal form D: U+00E9 becomes "e" + combining acute.
std::string to_nfd(std::string_view text);

// to_nfc, runs of Unicode white space become one U+0020, none is left at either end. Transcripts
// are compared and encoded in this form.
std::string normalize_transcript(std::string_view text);

std::vector<char32_t> code_points(std::string_view text);
bool is_utf8(std::string_view text);  // throws nothing
// U+FFFD in place of each sequence of bytes that is no character.
std::string replace_broken_utf8(std::string_view text);
std::string to_utf8(char32_t code_point);

// Parts of `text` without their ends, LF or CR LF, or a byte order mark before the first.
std::vector<std::string_view> split_lines(std::string_view text);
// Split on Unicode white space; no empty words.
std::vector<std::string> split_words(std::string_view text);

bool is_white_space(char32_t code_point);

// Whether a code point behind another belongs to the same character as readers see it: combining
// marks do (extended grapheme clusters of UAX #29, by utf8proc).
bool continues_character(char32_t before, char32_t code_point);

// A code point as messages have it: 'é' (U+00E9). What has no picture is never printed itself:
// U+200B (zero-width space), U+0301.
std::string describe(char32_t code_point);

// Systems differ in whether the accents in names of files are characters of their own. The path
// with the name behind the last '/' in normal form C, to tell files that belong together; and the
// path or, if nothing lies there, what lies there in normal form C or D. Neither throws.
std::string composed_name(const std::string& path);
std::string path_in_any_form(const std::string& path);

}  // namespace rondo
