// What the network writes, and its labels. Label 0 is the CTC blank; the i-th symbol has label
// i + 1. The model stores symbols(). There are two kinds:
//   * of characters: a symbol is one code point of the text in normal form C;
//   * of numbers, for data that come as label sequences without text: the symbol of label i is its
//     decimal number and a space, so that texts are numbers with spaces between and each is a word.
// Thread safety: immutable after construction.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/data/text_encoder.h"

namespace rondo {

class Alphabet final : public TextEncoder {
 public:
  static constexpr int32_t blank = 0;

  Alphabet() = default;
  // Makes the alphabet that a model stored. Throws InputError when a symbol is not exactly one code
  // point in normal form C, or occurs twice; symbols that are "1 ", "2 ", ... are an alphabet of
  // numbers.
  explicit Alphabet(std::vector<std::string> symbols);
  static Alphabet of_numbers(int32_t count);  // labels 1 to count

  // Every character that occurs in the transcripts (as normalize_transcript sees them), sorted by
  // code point, so that the result does not depend on their order. Throws InputError on invalid
  // UTF-8 (naming the transcript by its number, from 1).
  static Alphabet from_transcripts(std::span<const std::string> transcripts);

  const std::vector<std::string>& symbols() const { return symbols_; }
  int32_t classes() const override { return static_cast<int32_t>(symbols_.size()) + 1; }
  bool is_of_numbers() const { return numbers_; }

  // The same for a network that reads lines from right to left: labels are then in the order of
  // reading_order.h, texts in theirs.
  Alphabet reading_leftwards() const;
  bool reads_leftwards() const { return leftwards_; }
  // A text in the order of its labels, and back.
  std::string turned(std::string_view text) const;

  // normalize_transcript, then a label per character (or number). Those outside the alphabet are
  // left out of the labels and listed.
  EncodedText encode(std::string_view text) const override;

  // Throws Error on a label outside [1, classes()).
  std::string decode(std::span<const int32_t> labels) const;

 private:
  EncodedText encode_numbers(const std::string& text) const;

  std::vector<std::string> symbols_;
  bool numbers_ = false, leftwards_ = false;
  std::unordered_map<char32_t, int32_t> labels_;
};

// The symbols of the first, with their labels, and after them those that only the second has.
// Throws InputError where one is of numbers and the other of characters.
Alphabet extended(const Alphabet& first, const Alphabet& second);

// The labels of `text`. With `error`, characters outside the alphabet throw InputError, which names
// them with their code points: the text of `where` comes first ("train.jsonl:7"). With `skip` they
// are left out.
std::vector<int32_t> encode_or_fail(const TextEncoder& encoder, std::string_view text,
                                    UnknownCharacters policy, std::string_view where);

}  // namespace rondo
