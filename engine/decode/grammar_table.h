// All that a grammar can say, as a finite automaton over labels: each state that a prefix can be
// in, and for each label by what its probability is multiplied and which state comes then. For
// BatchDecoder alone.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/prefix_search.h"

namespace rondo::decode {

class GrammarTable {
 public:
  // Borrows nothing. Throws InputError where a label may follow in several ways (a word may end, or
  // go on; two words are spelled alike), and for more than `most_entries` of states and labels.
  GrammarTable(const Vocabulary& vocabulary, const Grammar& grammar, int64_t most_entries);

  int32_t states() const { return static_cast<int32_t>(states_.size()); }
  // [states, classes]; 0: the label may not follow. The first state is that of the empty prefix.
  std::span<const double> gains() const { return gains_; }
  std::span<const int32_t> next() const { return next_; }
  double most_gain() const { return most_gain_; }
  // Whether it says nothing: one state, all gains of labels that are written are 1.
  bool is_trivial() const { return is_trivial_; }

  // A prefix of these labels, which lead to this state.
  FoundPrefixes::Prefix prefix(std::vector<int32_t> labels, int32_t state,
                               double probability) const;

 private:
  const size_t classes_;
  std::vector<GrammarState> states_;
  std::vector<double> gains_;
  std::vector<int32_t> next_;
  std::vector<int32_t> words_;  // that end before the labels; empty: there are none
  double most_gain_ = 0;
  bool is_trivial_ = false;
};

}  // namespace rondo::decode
