// Word and character error rates.
//
// Both are (substitutions + insertions + deletions) of a cheapest alignment, divided by the
// reference's length, summed over utterances first. Texts are compared after normalize_transcript
// (NFC, white space collapsed). Words are what Unicode white space separates; characters are code
// points, the spaces between words included.
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rondo {

// "12.34%"; "n/a (empty references)" for the infinite rate of insertions into nothing.
std::string percent_text(double rate);

struct EditCounts {
  int64_t substitutions = 0;
  int64_t insertions = 0;  // in the hypothesis, not in the reference
  int64_t deletions = 0;   // in the reference, not in the hypothesis
  int64_t reference = 0;   // length of the reference

  int64_t errors() const { return substitutions + insertions + deletions; }
  // errors / reference. An empty reference gives 0 without errors, infinity with.
  double rate() const;
  EditCounts& operator+=(const EditCounts& other);
  bool operator==(const EditCounts&) const = default;
};

// A cheapest alignment (Levenshtein); among equally cheap ones, the one with the most
// substitutions. Time O(|a| |b|), memory O(|hypothesis|).
EditCounts edit_counts(std::span<const char32_t> reference, std::span<const char32_t> hypothesis);
EditCounts edit_counts(std::span<const std::string> reference,
                       std::span<const std::string> hypothesis);

// Sums over utterances.
class ErrorRate {
 public:
  ErrorRate() = default;
  // Takes sums made elsewhere.
  ErrorRate(const EditCounts& words, const EditCounts& characters, int64_t utterances,
            int64_t wrong)
      : words_(words), characters_(characters), utterances_(utterances), wrong_(wrong) {}
  // Throws InputError when a text is not valid UTF-8.
  void add(std::string_view reference, std::string_view hypothesis);
  ErrorRate& operator+=(const ErrorRate& other);

  const EditCounts& words() const { return words_; }
  const EditCounts& characters() const { return characters_; }
  double wer() const { return words_.rate(); }
  double cer() const { return characters_.rate(); }
  int64_t utterances() const { return utterances_; }
  int64_t wrong_utterances() const { return wrong_; }

 private:
  EditCounts words_, characters_;
  int64_t utterances_ = 0, wrong_ = 0;
};

// Whether spaces divide texts into words of which errors can be counted.
class WordSpacing {
 public:
  // Texts without a character add nothing. Throws InputError when one is not valid UTF-8.
  void add(std::string_view text);

  // At least half of the letters are of a script without spaces.
  bool unspaced_script() const { return letters_ > 0 && 2 * unspaced_ >= letters_; }
  // On average fewer than 1.5 words and more than 15 characters.
  bool long_words() const {
    return texts_ > 0 && 2 * words_ < 3 * texts_ && characters_ > 15 * texts_;
  }

 private:
  int64_t texts_ = 0, words_ = 0, characters_ = 0, letters_ = 0, unspaced_ = 0;
};

}  // namespace rondo
