// All n-grams of a model in memory, as the automaton that it is queried as.
//
// A state is a context: an n-gram that others continue or that has a back-off weight, or the empty
// context. The arcs of a state are the words that follow it there; an arc leads to the longest
// suffix of context and word that is a state. Where a state has no arc for a word, the search goes
// on in the longest proper suffix of the state that is a state. (The failure links of Aho and
// Corasick 1975, over the minimised states of Heafield 2011.)
//
// Memory: 16 bytes for each n-gram, 4 more for each of less than the highest order.
// Errors: InputError for two equal n-grams and for more than there are numbers; messages have no
// file's name. Thread safety: const members may be called at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/lm/arpa.h"

namespace rondo::lm {

class NgramTable : public NgramSink {
 public:
  // `vocabulary` is for messages, and must outlive the table.
  explicit NgramTable(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void begin(std::span<const uint64_t> counts) override;
  [[nodiscard]] bool add(std::span<const Word> words, float probability, float backoff) override;
  // After the last n-gram. Nothing below is there before.
  void end();

  struct Entry {
    uint32_t link;  // the state to back off to; of the highest order: the state behind the arc
    Word word;
    float probability, backoff;
  };

  int32_t order() const { return static_cast<int32_t>(levels_.size()); }
  // Of each order, from 1: sorted by context, then by word.
  const std::vector<Entry>& entries(int32_t order) const { return level(order).entries; }
  // Where the arcs out of an entry of an order below the highest begin among those of the next
  // order; they end where the next entry's begin.
  uint32_t first_arc(int32_t order, uint64_t entry) const {
    return order == 0 ? 0 : level(order).first_arc[entry];
  }
  bool is_state(int32_t order, uint64_t entry) const;
  // An entry's place among all, the empty context being 0; what `link` holds.
  uint32_t place(int32_t order, uint64_t entry) const {
    return static_cast<uint32_t>(first_place(order) + entry);
  }
  // How many states there are before a place: the number of the state there.
  uint32_t state_number(uint32_t place) const;
  // How many states are contexts of so many words.
  uint64_t states(int32_t words) const;
  // The place that the arc that is this entry leads to.
  uint32_t target(int32_t order, uint64_t entry) const {
    return is_state(order, entry) ? place(order, entry) : level(order).entries[entry].link;
  }

 private:
  struct Level {
    std::vector<Entry> entries;
    std::vector<uint32_t> first_arc;  // and one more
    uint64_t first_place = 0, promised = 0;
  };

  const Level& level(int32_t order) const { return levels_[static_cast<size_t>(order - 1)]; }
  Level& level(int32_t order) { return levels_[static_cast<size_t>(order - 1)]; }
  uint64_t first_place(int32_t order) const { return order == 0 ? 0 : level(order).first_place; }
  int32_t order_of(uint32_t place) const;
  // The arc for `word` among entries [begin, end) of an order; `end` if there is none.
  uint64_t find(int32_t order, uint64_t begin, uint64_t end, Word word) const;
  void finish_level(int32_t order);
  void sort_level(int32_t order);
  void link_arcs(int32_t order, uint64_t parent);
  void mark_states();
  std::string spelled(int32_t order, const Entry& entry) const;

  const Vocabulary& vocabulary_;
  std::vector<Level> levels_;
  int32_t open_ = 1;                // the order that n-grams are added of
  std::vector<Word> path_words_;    // the context that was looked up last,
  std::vector<uint32_t> path_;      // and the entries on the way to it
  std::vector<uint64_t> is_state_;  // a bit for each place below the highest order
  std::vector<uint32_t> states_before_;
};

}  // namespace rondo::lm
