// Where everything is in a binary of KenLM: format 5, as its program build_binary writes it.
//
//   88 bytes by which kind, byte order and word size are known; order, kind, numbers of n-grams
//   vocabulary: hashes of the words (MurmurHash64A), in a hash table or sorted
//   n-grams, in one of two kinds:
//     probing  a hash table for each order: a hash of the n-gram, log10 p, back-off weight
//     trie     records of bits, sorted: word, log10 p, back-off weight, where the n-grams begin
//              that have one word more before it. Weights may be numbers into tables (-q, -b), and
//              the high bits of the beginnings may be a list of where they change (-a)
//   texts of the words, each ended by a byte of 0
//
// Little-endian; nothing needs to be aligned.
// Errors: InputError, which starts with the name given. Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::lm {

// What binaries of KenLM begin with, of any version.
inline constexpr std::string_view kenlm_magic = "mmap lm http://kheafield.com/code ";

struct KenlmLayout {
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

  std::span<const std::byte> bytes;
  bool is_trie = false;
  int32_t quantized_bits = 0;
  uint32_t words = 0, states = 0;
  const std::byte* hashes = nullptr;  // of the words
  uint64_t buckets = 0;               // of their hash table
  std::string_view texts;
  std::vector<uint64_t> ends;  // of the texts, behind their zeros
  std::vector<Level> levels;   // of orders 1 ...
};

// Bytes of an entry: of the hash tables of the orders between, of the highest; of unigrams.
inline constexpr uint64_t kenlm_middle_bytes = 16, kenlm_longest_bytes = 12;
inline constexpr uint64_t kenlm_unigram_bytes = 8, kenlm_trie_unigram_bytes = 16;
inline constexpr size_t kenlm_most_orders = 32;

// Whatever the layout says lies within `bytes`, with eight bytes to read behind every record; what
// the n-grams say is not looked at.
KenlmLayout read_kenlm_layout(std::span<const std::byte> bytes, const std::string& name);

}  // namespace rondo::lm
