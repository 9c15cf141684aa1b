// Utterances divided into those to train on, to validate and to test with.
//
// Thread safety: pure functions that read files (page_images.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/corpus/lists/layouts.h"

namespace rondo::corpus {

struct Shares {
  double dev = 0, test = 0;
  uint64_t seed = 1;
};

// What utterances have in common that a model should not know from its training: who speaks, or the
// book that lines are from. Empty: not known.
const std::string& group_of(const ListedUtterance& u);

// Sets `split` of all, as list_corpus.h says, and tells how: "by speaker: nobody is in two parts".
// The draw depends on the seed and the names alone, wherever the data lie. There is at least one.
std::string divide(std::vector<ListedUtterance>& list, const Shares& shares);

}  // namespace rondo::corpus
