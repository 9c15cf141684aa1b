// Binaries of KenLM (format 5, by its program build_binary), queried where they lie.
//
//   88 bytes by which their kind, byte order and word size are known; order; kind; counts
//   vocabulary: hashes of the words (MurmurHash64A), in a hash table or sorted
//   n-grams, of one of two kinds:
//     probing  a hash table for each order: a hash of the n-gram, log10 p, back-off weight
//     trie     records of bits, sorted: word, log10 p, back-off weight, where the n-grams begin
//              that go on; weights may be numbers into tables (-q, -b), and the high bits of the
//              beginnings may be in a list of where they change (-a)
//   texts of the words, each ended by a byte of 0
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
#include <vector>

namespace rondo::lm {

using Word = uint32_t;

// What binaries of KenLM begin with, of any version.
inline constexpr std::string_view kenlm_magic = "mmap lm http://kheafield.com/code ";

// What log10 p = -inf counts as, here and in ARPA files: what SRILM writes in its place. Sums of it
// stay numbers.
inline constexpr float zero_probability = -99;

class KenlmModel {
 public:
  // `bytes` must outlive the model; `name` stands for the file in messages.
  KenlmModel(std::span<const std::byte> bytes, std::string name);

  // As LanguageModel has them.
  int32_t order() const { return static_cast<int32_t>(levels_.size()); }
  Word words() const { return words_; }
  uint64_t ngrams(int32_t order) const { return order == 1 ? words_ : level(order).ngrams; }
  uint32_t states() const { return states_; }
  uint64_t bytes() const { return bytes_.size(); }
  int32_t quantized_bits() const { return quantized_bits_; }
  Word word(std::string_view text) const;  // 0, <unk>: it has none
  std::string_view text(Word word) const;
  uint32_t begin_sentence() const;
  // Adds floats in the order that KenLM adds them in.
  float score(uint32_t state, Word word, uint32_t& next, int32_t& length) const;

 private:
  // The n-grams of an order.
  struct Level {
    const std::byte* at = nullptr;  // entries of the hash table, or records
    uint64_t ngrams = 0;
    uint64_t entries = 0;      // of the hash table, or records
    uint64_t first_state = 0;  // the number of the first entry
    // Of a trie from order 2 on:
    uint32_t word_bits = 0, probability_bits = 0, backoff_bits = 0, next_bits = 0;
    const std::byte* probabilities = nullptr;  // what the numbers stand for; null: they are floats
    const std::byte* backoffs = nullptr;
    const std::byte* changes = nullptr;  // the records where the high bits of `next` change
    uint64_t number_of_changes = 0;

    uint64_t record_bits() const {
      return uint64_t{word_bits} + probability_bits + backoff_bits + next_bits;
    }
  };
  // An n-gram that was found, and where those are that have one word more before it.
  struct Entry {
    uint64_t index = 0;
    float probability = 0, backoff = 0;
    uint64_t hash = 0, begin = 0, end = 0;  // of a hash table; of a trie
    bool is_longest = false;                // there are none
  };
  static constexpr size_t most_words = 31;
  struct Context {
    int32_t length = 0;
    Word words[most_words];  // the last one first
    float backoffs[most_words];
  };

  class Reader;

  const Level& level(int32_t order) const { return levels_[static_cast<size_t>(order - 1)]; }
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

  std::span<const std::byte> bytes_;
  std::string name_;
  bool is_trie_ = false;
  int32_t quantized_bits_ = 0;
  Word words_ = 0;
  uint32_t states_ = 0;
  const std::byte* hashes_ = nullptr;  // of the words
  uint64_t buckets_ = 0;               // of their hash table
  const char* texts_ = nullptr;
  std::vector<uint64_t> ends_;  // of the texts, behind their zeros
  std::vector<Level> levels_;   // of orders 1 ...
  struct Free {
    void operator()(uint32_t* p) const;
  };
  std::unique_ptr<uint32_t[], Free> shorter_;  // for each entry from order 2 on, once it was met
};

}  // namespace rondo::lm
