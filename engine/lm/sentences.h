// Sentences of texts, as tokens: words, or characters.
//
// A text is a file with a sentence on each line, or a manifest (*.jsonl, engine/data/manifest.h)
// with one in each line's "text"; both may be compressed by gzip (*.gz). Sentences are brought into
// the form of transcripts (normalize_transcript(), then the rules).
//
// Errors: InputError that names the file and the line. Thread safety: one thread per object.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/lm/line_reader.h"
#include "engine/text/text_rules.h"

namespace rondo::lm {

// What a space is as a token of its own, among characters.
inline constexpr std::string_view space_token = "<space>";

struct SentenceOptions {
  TextRules rules;
  bool characters = false;  // code points are tokens, and marks with Marks::token
};

class SentenceReader {
 public:
  SentenceReader(const std::string& path, const SentenceOptions& options);

  // The next sentence's tokens, valid until the next call; false: there is none. Empty lines have
  // no tokens.
  bool next(std::vector<std::string_view>& tokens);

  const LineReader& lines() const { return lines_; }
  // In what was read, where the rules make i of I.
  const DotlessI& dotless_i() const { return dotless_i_; }

 private:
  void split(std::string_view text, std::vector<std::string_view>& tokens) const;
  void add_characters(std::string_view word, std::vector<std::string_view>& tokens) const;

  LineReader lines_;
  SentenceOptions options_;
  bool is_manifest_;
  DotlessI dotless_i_;
  std::string text_;  // what the tokens are parts of
};

}  // namespace rondo::lm
