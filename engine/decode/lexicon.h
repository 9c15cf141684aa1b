// Words and how they are spelled in the tokens of a model, and words that are to be expected.
//
// A lexicon is a text file of lines "word<TAB>token token ...": what stands before the first tab or
// space is the word, then its tokens follow, with spaces between. A word may have several lines,
// and several words the same tokens. A line of a word alone is spelled by the vocabulary.
// A list of hot words has a word or phrase on each line, and its weight behind a tab if it is not
// that of the others; of a phrase that is there twice the last line counts. A list of known words,
// as pyctcdecode's unigrams.txt, has one on each line. Empty lines are passed over in all.
//
// Errors: InputError that names the file, the line and what is wrong. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode/vocabulary.h"

namespace rondo {

struct Spelling {
  std::string word;
  std::vector<int32_t> labels;

  bool operator==(const Spelling&) const = default;
};

std::vector<Spelling> open_lexicon(const std::string& path, const Vocabulary& vocabulary);
// The same of a file's content; `name` stands for the file in messages.
std::vector<Spelling> parse_lexicon(std::string_view content, const Vocabulary& vocabulary,
                                    const std::string& name);

struct HotWord {
  std::string phrase;  // words with a space between
  double weight = 0;   // natural logarithm; negative for what is not to be written

  bool operator==(const HotWord&) const = default;
};

// Sorted, each once; none of an empty file. They are not normalised: a language model's words are
// compared byte by byte.
std::vector<std::string> open_known_words(const std::string& path);
std::vector<std::string> parse_known_words(std::string_view content, const std::string& name);

// `weight`: of lines that say none.
std::vector<HotWord> open_hot_words(const std::string& path, double weight);
std::vector<HotWord> parse_hot_words(std::string_view content, double weight,
                                     const std::string& name);

}  // namespace rondo
