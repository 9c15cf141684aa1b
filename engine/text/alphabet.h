// A character alphabet: which characters the network writes, and their labels.
//
// A character is one code point of the text in normal form C. Label 0 is the CTC blank; the i-th
// symbol has label i + 1. The model stores symbols().
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
  // From what a model stored. Throws InputError when a symbol is not exactly one code point in
  // normal form C, or occurs twice.
  explicit Alphabet(std::vector<std::string> symbols);

  // Every character that occurs in the transcripts (as normalize_transcript sees them), sorted by
  // code point, so that the result does not depend on their order. Throws InputError on invalid
  // UTF-8 (naming the transcript by its number, from 1).
  static Alphabet from_transcripts(std::span<const std::string> transcripts);

  const std::vector<std::string>& symbols() const { return symbols_; }
  int32_t classes() const override { return static_cast<int32_t>(symbols_.size()) + 1; }

  // normalize_transcript, then a label per character. Characters outside the alphabet are left out
  // of the labels and listed.
  EncodedText encode(std::string_view text) const override;

  // Throws Error on a label outside [1, classes()).
  std::string decode(std::span<const int32_t> labels) const;

 private:
  std::vector<std::string> symbols_;
  std::unordered_map<char32_t, int32_t> labels_;
};

// The labels of `text`. With `error`, characters outside the alphabet throw InputError, which names
// them with their code points: the text of `where` comes first ("train.jsonl:7"). With `skip` they
// are left out.
std::vector<int32_t> encode_or_fail(const TextEncoder& encoder, std::string_view text,
                                    UnknownCharacters policy, std::string_view where);

}  // namespace rondo
