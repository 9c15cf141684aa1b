// What may be done to transcripts so that a model has less to learn.
//
// Thread safety: pure functions. Errors: InputError when the text is not valid UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

struct TextReplacement {
  std::string from, to;  // normal form C; `from` is not empty

  // Of "FROM=TO", where FROM may begin with "=" and TO may be empty; nothing for what is not so.
  static std::optional<TextReplacement> parse(std::string_view text);
  std::string text() const { return from + "=" + to; }
  bool operator==(const TextReplacement&) const = default;
};

// The lines of a file, each FROM=TO; empty ones and a byte order mark at the start are
// skipped. Throws InputError that names the line.
std::vector<TextReplacement> read_replacements(const std::string& file);

// Those whose FROM occurs in none of the texts, as those before them have changed it.
std::vector<TextReplacement> never_found(const std::vector<TextReplacement>& replace,
                                         const std::vector<std::string>& texts);

struct TextRules {
  bool lowercase = false;
  // Dashes and underscores (general categories Pd and Pc) become spaces, all other punctuation (P*)
  // goes; an apostrophe between letters or digits stays.
  bool strip_punctuation = false;

  // Normal form KC instead of C: ligatures, full-width and other compatibility characters become
  // the plain ones.
  bool compatibility = false;

  // One after another, wherever they occur, before all other rules.
  std::vector<TextReplacement> replace = {};

  bool any() const { return !replace.empty() || lowercase || strip_punctuation || compatibility; }
  bool operator==(const TextRules&) const = default;
};

// The text as normalize_transcript() gives it, changed by the rules. Lower case is Unicode's simple
// mapping.
std::string apply_rules(const TextRules& rules, std::string_view text);

}  // namespace rondo
