// A language model in a binary of KenLM, queried where it lies (kenlm_layout.h).
//
// N-grams are looked up from their last word backwards. A state is the place of a context among the
// entries below the highest order, so it needs no table of states; its words, which its place does
// not tell, are found by a chain: each entry that was met remembers the entry that is one word
// shorter. That takes four bytes for each such entry, of pages that are touched when it is met.
//
// Errors: InputError for what is no such model, and for a query that meets what is damaged. Thread
// safety: as LanguageModel's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/lm/kenlm/kenlm_layout.h"

namespace rondo::lm {

using Word = uint32_t;

// What log10 p = -inf counts as, here and in ARPA files: what SRILM writes in its place. Sums of it
// stay numbers.
inline constexpr float zero_probability = -99;

class KenlmModel {
 public:
  // `bytes` must outlive the model; `name` stands for the file in messages.
  KenlmModel(std::span<const std::byte> bytes, std::string name);

  // As LanguageModel has them. Where the vocabulary lacks <s> or </s> (build_binary -s), <unk>
  // stands for it, as with KenLM.
  int32_t order() const { return static_cast<int32_t>(at_.levels.size()); }
  Word words() const { return at_.words; }
  uint64_t ngrams(int32_t order) const { return order == 1 ? at_.words : level(order).ngrams; }
  uint32_t states() const { return at_.states; }
  uint64_t bytes() const { return at_.bytes.size(); }
  int32_t quantized_bits() const { return at_.quantized_bits; }
  Word word(std::string_view text) const;  // 0, <unk>: it has none
  std::string_view text(Word word) const;
  uint32_t begin_sentence() const;
  // Adds floats in the order that KenLM adds them in.
  float score(uint32_t state, Word word, uint32_t& next, int32_t& length) const;

 private:
  using Level = KenlmLayout::Level;
  // An n-gram that was found, and where those are that have one word more before it.
  struct Entry {
    uint64_t index = 0;
    float probability = 0, backoff = 0;
    uint64_t hash = 0, begin = 0, end = 0;  // of a hash table; of a trie
    bool is_longest = false;                // there are none
  };
  struct Context {
    int32_t length = 0;
    Word words[kenlm_most_orders];  // the last one first
    float backoffs[kenlm_most_orders];
  };

  const Level& level(int32_t order) const { return at_.levels[static_cast<size_t>(order - 1)]; }
  Entry unigram(Word word) const;
  // Puts a word before the n-gram of order - 1. False: there is no such n-gram.
  bool extend(int32_t order, Word word, Entry& entry) const;
  bool find_hash(const Level& level, uint64_t entry_bytes, uint64_t hash, uint64_t& index) const;
  bool find_record(const Level& level, Word word, Entry& entry) const;
  void read_record(const Level& level, Entry& entry) const;
  uint64_t next_of(const Level& level, uint64_t index) const;
  float backoff_of(const Level& level, uint64_t index) const;
  void read_context(uint32_t state, Context& context) const;
  Word first_word(int32_t order, uint64_t index, uint64_t& hash) const;
  float finite_sum(float probability, const Context& context, int32_t length) const;
  [[noreturn]] void fail_damaged(const char* what) const;

  std::string name_;
  KenlmLayout at_;
  struct Free {
    void operator()(uint32_t* p) const;
  };
  std::unique_ptr<uint32_t[], Free> shorter_;  // for each entry from order 2 on, once it was met
};

}  // namespace rondo::lm
