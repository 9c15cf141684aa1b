// What may be done to transcripts so that a model has less to learn.
//
// Thread safety: pure functions. Errors: InputError when the text is not valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace rondo {

struct TextRules {
  bool lowercase = false;
  // Dashes and underscores (general categories Pd and Pc) become spaces, all other punctuation (P*)
  // goes; an apostrophe between letters or digits stays.
  bool strip_punctuation = false;

  // Normal form KC instead of C: ligatures, full-width and other compatibility characters become
  // the plain ones.
  bool compatibility = false;

  bool any() const { return lowercase || strip_punctuation || compatibility; }
  bool operator==(const TextRules&) const = default;
};

// The text as normalize_transcript() gives it, changed by the rules. Lower case is Unicode's simple
// mapping.
std::string apply_rules(const TextRules& rules, std::string_view text);

}  // namespace rondo
