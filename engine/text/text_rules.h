// What may be done to transcripts so that a model has less to learn.
//
// Thread safety: pure functions. Errors: InputError when the text is not valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/letter_case.h"

namespace rondo {

struct TextReplacement {
  std::string from, to;  // normal form C; `from` is not empty

  // Of "FROM=TO", where FROM may begin with "=" and TO may be empty; nothing for what is not so.
  // Either may be written as code points, "U+200B" or "U+0041 U+0301".
  static std::optional<TextReplacement> parse(std::string_view text);
  std::string text() const;  // parse() gives the same back
  bool operator==(const TextReplacement&) const = default;
};

// The lines of a file, each FROM=TO; empty ones and a byte order mark at the start are
// skipped. Throws InputError that names the line.
std::vector<TextReplacement> read_replacements(const std::string& file);

// Those whose FROM occurs in none of the texts, as those before them have changed it.
std::vector<TextReplacement> never_found(const std::vector<TextReplacement>& replace,
                                         const std::vector<std::string>& texts);

// What becomes of marks (marks.h): they are characters as others, or go, or each is one symbol that
// no other rule changes, called without spaces.
enum class Marks : uint8_t { keep, drop, token };

// What a label stands for: a character, or what stands between spaces, a phone say.
enum class TextUnit : uint8_t { character, word };

struct TextRules {
  bool lowercase = false;
  // Dashes and underscores (general categories Pd and Pc) become spaces, all other punctuation (P*)
  // goes; an apostrophe between letters or digits stays. Numbers stay whole:
  //   * between two digits all stays but brackets and quotation marks, of which a space is left, as
  //     of several signs in a row: 3.14, 1,000, 10:30, 1/2, 2014-05-06;
  //   * a hyphen or short dash before a number or its currency, and a point that begins a number:
  //   -5,
  //     -£5, .5;
  //   * a per cent or per mille sign at a number, with a space between or without: 50%, 50 %, %50.
  bool strip_punctuation = false;

  // Normal form KC instead of C: ligatures, full-width and other compatibility characters become
  // the plain ones.
  bool compatibility = false;

  // One after another, wherever they occur, before all other rules.
  std::vector<TextReplacement> replace = {};

  // What is_invisible() (characters.h) goes, unless it joins or parts letters of a script that
  // needs it; a soft hyphen at the end of a text shows, and becomes a hyphen.
  bool drop_invisible = false;
  Marks marks = Marks::keep;
  TextLocale locale = {};               // of lower and upper case
  TextUnit unit = TextUnit::character;  // changes no text

  // I becomes i, which is wrong in Turkish and Azeri (DotlessI tells such texts).
  bool puts_dot_on_i() const { return lowercase && !locale.has_dotless_i(); }
  bool any() const {
    return !replace.empty() || lowercase || strip_punctuation || compatibility || drop_invisible ||
           marks != Marks::keep;
  }
  bool operator==(const TextRules&) const = default;
};

// The text as normalize_transcript() gives it, changed by the rules: replacements first, then
// compatibility, what is invisible, marks, punctuation and the case of letters.
std::string apply_rules(const TextRules& rules, std::string_view text);

// The text as it is once it is normalised and `rules.replace` has changed it.
std::string replaced(const TextRules& rules, std::string_view text);

// The rules of a model, and those that somebody asks for besides.
TextRules both(const TextRules& first, const TextRules& second);

}  // namespace rondo
