// The words of a language model, each with its number.
//
// Thread safety: const members may be called at once. Errors: InputError for more words than have
// numbers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/hash.h"

namespace rondo::lm {

using Word = uint32_t;

inline constexpr Word unknown = 0;
inline constexpr Word no_word = UINT32_MAX;
inline constexpr std::string_view unknown_text = "<unk>", begin_text = "<s>", end_text = "</s>";

// Words in memory that belongs to somebody else, as files of models have them too: where each text
// ends in all texts one after the other, and a hash table with open addressing of numbers plus one.
struct VocabularyView {
  const std::byte* ends = nullptr;  // uint64_t for each word; nothing needs to be aligned
  std::string_view texts;
  const std::byte* table = nullptr;  // uint32_t
  uint64_t words = 0, slots = 0;     // slots: a power of two, some of them 0

  std::string_view text(Word word) const {
    const uint64_t begin = word == 0 ? 0 : at<uint64_t>(ends, word - 1);
    return texts.substr(begin, at<uint64_t>(ends, word) - begin);
  }
  // no_word: there is none.
  Word find(std::string_view text) const {
    for (uint64_t slot = first_slot(text), tried = 0; tried < slots; ++tried) {
      const uint32_t found = at<uint32_t>(table, slot);
      if (found == 0 || found > words) return no_word;
      if (this->text(found - 1) == text) return found - 1;
      slot = (slot + 1) & (slots - 1);
    }
    return no_word;
  }
  uint64_t first_slot(std::string_view text) const {
    const uint64_t hash = fnv1a(text);
    return (hash ^ (hash >> 32)) & (slots - 1);
  }

  template <class T>
  static T at(const std::byte* values, uint64_t index) {
    T value;
    std::memcpy(&value, values + index * sizeof(T), sizeof(T));
    return value;
  }
};

// Words that are added, in memory of its own. <unk> is there from the start, as number 0.
class Vocabulary {
 public:
  Vocabulary();

  Word size() const { return static_cast<Word>(ends_.size()); }
  std::string_view text(Word word) const { return view().text(word); }
  Word find(std::string_view text) const { return view().find(text); }
  // Its number, which is size() before the call if it is new.
  Word add(std::string_view text);

  VocabularyView view() const {
    return {reinterpret_cast<const std::byte*>(ends_.data()), texts_,
            reinterpret_cast<const std::byte*>(table_.data()), ends_.size(), table_.size()};
  }
  uint64_t bytes() const { return ends_.size() * 8 + texts_.size() + table_.size() * 4; }

 private:
  void insert(Word word);

  std::vector<uint64_t> ends_;
  std::string texts_;
  std::vector<uint32_t> table_;
};

}  // namespace rondo::lm
