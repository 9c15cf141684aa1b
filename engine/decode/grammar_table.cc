#include "engine/decode/grammar_table.h"

#include <unordered_map>
#include <utility>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::decode {
namespace {

struct Hash {
  size_t operator()(const GrammarState& s) const {
    uint64_t x = uint64_t{s.history} << 32 | static_cast<uint32_t>(s.place);
    x ^= static_cast<uint64_t>(static_cast<uint32_t>(s.border)) << 12;
    x = (x ^ static_cast<uint64_t>(static_cast<uint32_t>(s.phrase)) << 20) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(x ^ x >> 29);
  }
};
struct Equal {
  bool operator()(const GrammarState& a, const GrammarState& b) const {
    return a.place == b.place && a.history == b.history && a.phrase == b.phrase &&
           a.border == b.border;
  }
};

}  // namespace

GrammarTable::GrammarTable(const Vocabulary& vocabulary, const Grammar& grammar,
                           int64_t most_entries)
    : classes_(static_cast<size_t>(vocabulary.classes())) {
  ModelMemo memo;
  std::unordered_map<GrammarState, int32_t, Hash, Equal> numbers;
  const auto number_of = [&](const GrammarState& s) {
    const auto [at, is_new] = numbers.try_emplace(s, states());
    if (is_new) states_.push_back(s);
    return at->second;
  };
  number_of(grammar.start());
  bool all_one = true;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (static_cast<int64_t>(states_.size() * classes_) > most_entries)
      fail_input("what the search is to know of the language has more than ",
                 most_entries / vocabulary.classes(),
                 " states, the most that a device's search of ", vocabulary.classes(),
                 " tokens takes; search on the CPU");
    for (int32_t label = 0; label < vocabulary.classes(); ++label) {
      double label_gain = 0;
      int32_t then = 0, label_word = no_word, ways = 0;
      if (vocabulary.token(label).is_written) {
        const GrammarState from = states_[i];
        grammar.extend(from, label, memo,
                       [&](const GrammarState& state, int32_t word, double gain) {
                         ++ways;
                         label_gain = gain;
                         label_word = word;
                         then = number_of(state);
                       });
        all_one = all_one && label_gain == 1;
      }
      if (ways > 1)
        fail_input("a word of the list may end, or go on, before the token ",
                   quoted_start(vocabulary.token(label).name),
                   ", or two words are spelled alike; a device's search takes no such choice; "
                   "search on the CPU");
      gains_.push_back(label_gain);
      next_.push_back(then);
      if (grammar.has_words()) words_.push_back(label_word);
      most_gain_ = std::max(most_gain_, label_gain);
    }
  }
  is_trivial_ = all_one && states() == 1;
}

FoundPrefixes::Prefix GrammarTable::prefix(std::vector<int32_t> labels, int32_t state,
                                           double probability) const {
  FoundPrefixes::Prefix p;
  p.probability = probability;
  p.state = states_[static_cast<size_t>(state)];
  p.path.words.assign(labels.size(), no_word);
  if (!words_.empty()) {
    size_t at = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      at = at * classes_ + static_cast<size_t>(labels[i]);
      p.path.words[i] = words_[at];
      at = static_cast<size_t>(next_[at]);
    }
  }
  p.path.labels = std::move(labels);
  return p;
}

}  // namespace rondo::decode
