// Rows moved from place to place as they are: whatever the type, in the widest words that divide a
// row. For *.cu files.
#pragma once

#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {

// Copies `words` words from `from`, or zeros where that is nullptr; by a team.
template <class Word, int lanes>
__device__ void copy_row(const Team<lanes>& team, Word* to, const Word* from, int64_t words) {
  for (int64_t i = team.rank; i < words; i += lanes) {
    Word word = {};
    if constexpr (sizeof(Word) == 16) {
      if (from) word = load_words<16>(from + i);
      store_words(to + i, word);
    } else {
      if (from) word = from[i];
      to[i] = word;
    }
  }
}

// f(Word{}, words per row) for rows of `bytes` bytes that begin at multiples of that from `p`.
template <class F>
void with_words(int64_t bytes, std::initializer_list<const void*> p, F f) {
  uintptr_t odd = static_cast<uintptr_t>(bytes);
  for (const void* address : p) odd |= reinterpret_cast<uintptr_t>(address);
  if (odd % 16 == 0) return f(Words<16>{}, bytes / 16);
  if (odd % 4 == 0) return f(uint32_t{}, bytes / 4);
  if (odd % 2 == 0) return f(uint16_t{}, bytes / 2);
  f(uint8_t{}, bytes);
}

}  // namespace rondo::RONDO_GPU
