// What the network writes, and its labels. Label 0 is the CTC blank; the i-th symbol has label
// i + 1. The model stores symbols(). There are three kinds:
//   * of characters: a symbol is one code point of the text in normal form C, a letter with signs
//     that belong to it (UAX #29), or a mark (marks.h). The longest that fits is taken of a text;
//   * of words, phones say: a symbol is a word and a space, so that texts are words with spaces
//     between;
//   * of numbers, for data that come as label sequences without text: words of which the i-th is i.
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/data/text_encoder.h"
#include "engine/text/text_rules.h"

namespace rondo {

class Alphabet final : public TextEncoder {
 public:
  static constexpr int32_t blank = 0;

  Alphabet() = default;
  // Makes the alphabet that a model stored. Symbols that are "1 ", "2 ", ... are an alphabet of
  // numbers, those that all are a word and a space one of words. Throws InputError when a symbol of
  // another is neither one character in normal form C nor a mark, or one occurs twice.
  explicit Alphabet(std::vector<std::string> symbols);
  static Alphabet of_numbers(int32_t count);  // labels 1 to count

  // Every character that occurs in the transcripts (as normalize_transcript sees them), sorted by
  // code point, so that the result does not depend on their order; or every word, with rules.unit.
  // With Marks::token marks are symbols, behind the characters. Throws InputError on invalid UTF-8
  // (naming the transcript by its number, from 1).
  static Alphabet from_transcripts(std::span<const std::string> transcripts,
                                   const TextRules& rules = {});

  const std::vector<std::string>& symbols() const { return symbols_; }
  int32_t classes() const override { return static_cast<int32_t>(symbols_.size()) + 1; }
  bool is_of_numbers() const { return numbers_; }
  bool is_of_words() const { return words_; }  // numbers are
  // What its symbols are: "characters", "words", "numbers".
  std::string_view units() const override;

  // The same for a network that reads lines from right to left: labels are then in the order of
  // reading_order.h, texts in theirs.
  Alphabet reading_leftwards() const;
  bool reads_leftwards() const { return leftwards_; }
  // A text in the order of its labels, and back.
  std::string in_label_order(std::string_view text) const;
  std::string in_text_order(std::string_view labels) const;

  // normalize_transcript, then a label per symbol. Those outside the alphabet are
  // left out of the labels and listed.
  EncodedText encode(std::string_view text) const override;

  // Throws Error on a label outside [1, classes()).
  std::string decode(std::span<const int32_t> labels) const;

 private:
  // A character or a mark, as it is written from left to right or not.
  struct Unit {
    char32_t sign = 0;
    std::string mark;  // empty: the sign is the character
  };
  std::vector<Unit> units_of(std::string_view text) const;
  using Order = std::vector<size_t> (*)(std::span<const char32_t>);  // of reading_order.h
  std::vector<Unit> in_order(std::vector<Unit> units, Order order) const;
  std::string in_order(std::string_view text, Order order) const;
  static std::string text_of(const std::vector<Unit>& units);

  EncodedText encode_words(const std::string& text) const;
  std::optional<int32_t> label_of_word(const std::string& word) const;
  void add_symbol(const std::string& symbol, int32_t label);
  // The label of the longest symbol at a place of a text, and how many code points it has; 0: none.
  std::pair<int32_t, size_t> label_at(std::span<const char32_t> rest) const;

  std::vector<std::string> symbols_;
  bool numbers_ = false, words_ = false, leftwards_ = false;
  std::unordered_map<char32_t, int32_t> labels_;
  std::unordered_map<std::string, int32_t>
      long_labels_;  // of words without the space, and of marks
  std::map<std::u32string, int32_t, std::less<>> clusters_;  // of several code points
};

// Whether texts seem to be phones, or other names of sounds: few different words that recur, short
// and of letters, and some of several characters. A model then learns them best as words.
bool look_like_phones(std::span<const std::string> texts);

// The symbols of the first, with their labels, and after them those that only the second has.
// Throws InputError where they are of different kinds.
Alphabet extended(const Alphabet& first, const Alphabet& second);

// The labels of `text`. `skip` leaves out characters outside the alphabet. With `error` they throw
// InputError, which names `where` ("train.jsonl:7") and their code points.
std::vector<int32_t> encode_or_fail(const TextEncoder& encoder, std::string_view text,
                                    UnknownCharacters policy, std::string_view where);

}  // namespace rondo
