// What there is to say of the texts of a data set before a model learns to write them: marks in
// brackets, characters without a picture, what looks alike, scripts without spaces, phones.
//
// Nothing is changed; each finding names what it found, how often, and where first. Texts are
// looked at as the rules leave them, and marks and what has no picture as they are before that.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/text_rules.h"

namespace rondo {

struct TextFinding {
  std::string what;   // "marks in brackets, kept as characters"
  int64_t texts = 0;  // that hold some
  std::string first;  // what the first of them is called; empty: of all texts together
  // What they are, the most frequent first; equally frequent ones as they are sorted.
  std::vector<std::pair<std::string, int64_t>> kinds;
  std::string advice;  // what may be done, and what it means; may be empty

  // "marks in brackets, kept as characters: 3 of 5 texts, first a0.wav: '<unk>' 2 times, '[noise]'"
  std::string sentence(int64_t all_texts) const;
};

struct TextFindings {
  int64_t texts = 0;  // that were looked at
  std::vector<TextFinding> findings;
  // Lines of a file for --replace that make one of what looks alike, as they can be read.
  std::vector<std::string> replacements;
  bool like_phones = false;     // text.unit = "word" suits them
  bool without_spaces = false;  // most letters are of a script without spaces, and words are long
};

class TextExaminer {
 public:
  // `rules`: those that the texts are given to. `of_lines`: they are of images, where round
  // brackets and the like are print and no noises.
  TextExaminer(const TextRules& rules, bool of_lines);
  ~TextExaminer();

  // `where` names it. A text that is not UTF-8 is passed over. One thread at a time.
  void add(std::string_view text, const std::string& where);
  TextFindings findings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
