// What references hold that a model cannot write, because its alphabet has no symbol for it: errors
// that no training takes away.
//
// Each such character of a reference is a substitution or a deletion in every alignment, and each
// word with one is wrong, so their shares of the references are lower bounds of CER and WER.
// Thread safety: plain data. Borrows the alphabet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/alphabet.h"

namespace rondo {

class Unwritable {
 public:
  explicit Unwritable(const Alphabet& alphabet) : alphabet_(&alphabet) {}

  // Throws InputError when the text is not valid UTF-8.
  void add(std::string_view reference);

  bool any() const { return characters_ > 0; }
  int64_t utterances() const { return utterances_; }  // that hold some
  int64_t characters() const { return characters_; }  // (of the alphabet's units)
  int64_t words() const { return words_; }            // that hold some
  // Which, the most frequent first; equally frequent ones in the order of their first occurrence.
  std::vector<UnknownText> kinds() const;
  // "9 of 132 utterances hold 18 characters this model cannot write: 'ę' (U+0119) 4 times, ..."
  // With `noun` for what each reference is of.
  std::string sentence(std::string_view noun = "utterance") const;

 private:
  const Alphabet* alphabet_;
  int64_t all_ = 0, utterances_ = 0, characters_ = 0, words_ = 0;
  std::vector<UnknownText> kinds_;
};

}  // namespace rondo
