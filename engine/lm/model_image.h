// A language model as bytes: what is queried, in memory or mapped from a file, in one format.
//
//   header; texts of words (vocabulary.h); for each order k from 1:
//     contexts of k - 1 words: where their arcs begin, back-off weight, state to back off to
//     arcs, the n-grams of order k: word, log10 p, next state
//     tables of what quantised weights stand for
//   CRC-32C of all before it
// Records are as many bits as their fields need, one after the other without gaps. Back-off weights
// and probabilities are floats or, from order 2 on, numbers into a table of their order. Words of
// order 1 are not stored, for there is one arc for each. Little-endian; nothing is aligned.
//
// Errors: InputError for bytes that are no such model; it starts with the name given. Thread
// safety: pure functions, plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/lm/ngram_table.h"
#include "kernels/base/cpu/parallel.h"

namespace rondo::lm {

// Bits [at, at + width) from `bytes`, width at most 32. Eight bytes from at / 8 on are read.
inline uint32_t read_bits(const std::byte* bytes, uint64_t at, uint32_t width) {
  uint64_t value;
  std::memcpy(&value, bytes + at / 8, sizeof value);
  return static_cast<uint32_t>((value >> (at % 8)) & ((uint64_t{1} << width) - 1));
}

// Where the fields of records are, in bits; records of three fields each.
struct RecordLayout {
  uint64_t count = 0, at = 0;  // records, and the first one's byte in the image
  uint64_t table_at = 0;       // of a quantised second field: 2^width[1] floats; 0: it is a float
  uint32_t width[3] = {0, 0, 0};
  uint32_t reserved = 0;

  uint64_t record_bits() const { return uint64_t{width[0]} + width[1] + width[2]; }
};

// Contexts are { first arc, back-off weight, state to back off to }, with one more record whose
// first field alone counts; arcs are { word, log10 p, next state }.
struct LevelLayout {
  RecordLayout contexts, arcs;
  uint64_t first_state = 0;  // the number of the first context
};

struct ImageHeader {
  char magic[8];
  uint32_t version, byte_order, order, quantized_bits;
  uint64_t bytes;  // of the whole image
  uint64_t words, ends_at, texts_at, texts_bytes, table_at, slots;
  uint64_t states;
};

inline constexpr char image_magic[8] = {'r', 'o', 'n', 'd', 'o', ' ', 'l', 'm'};
inline constexpr uint32_t image_version = 1;

// Gives the bytes of the image one piece after the other to `write`. `quantize`: 0, or how many
// bits a weight is quantised to, 2 to 16.
void write_image(const NgramTable& table, const Vocabulary& vocabulary, int32_t quantize,
                 FunctionRef<void(std::span<const std::byte>)> write);

// What an image is made of. All that it says of places within it was checked; what its records say
// was not, but is covered by its checksum.
struct ImageView {
  ImageHeader header;
  VocabularyView vocabulary;
  std::vector<LevelLayout> levels;  // of orders 1 ...
  std::span<const std::byte> bytes;
};

ImageView view_image(std::span<const std::byte> bytes, const std::string& name);

}  // namespace rondo::lm
