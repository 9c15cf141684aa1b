#include "engine/lm/ngram_table.h"

#include <algorithm>
#include <bit>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::lm {

void NgramTable::begin(std::span<const uint64_t> counts) {
  uint64_t all = 2;  // the empty context, and <unk> where the file has none
  for (const uint64_t count : counts) all += count;
  if (all >= UINT32_MAX) {
    fail_input("the model has ", all - 2, " n-grams, expected fewer than ", UINT32_MAX - 2,
               ": states are numbers of 32 bits");
  }
  levels_.resize(counts.size());
  for (size_t k = 0; k < counts.size(); ++k) levels_[k].promised = counts[k] + (k == 0);
}

uint64_t NgramTable::find(int32_t order, uint64_t begin, uint64_t end, Word word) const {
  const Entry* entries = level(order).entries.data();
  const Entry* last = entries + end;
  const Entry* found = std::lower_bound(entries + begin, last, word,
                                        [](const Entry& e, Word w) { return e.word < w; });
  return found != last && found->word == word ? static_cast<uint64_t>(found - entries) : end;
}

bool NgramTable::add(std::span<const Word> words, float probability, float backoff) {
  const auto order = static_cast<int32_t>(words.size());
  while (open_ < order) finish_level(open_++);
  std::vector<Entry>& entries = level(order).entries;
  if (entries.size() == entries.capacity()) {
    // A damaged file may promise anything, so it is believed as far as it has shown.
    entries.reserve(std::min<uint64_t>(level(order).promised, 16 * entries.size() + (1 << 16)));
  }
  if (order == 1) {
    if (words[0] >= entries.size()) entries.resize(words[0] + 1);
    entries[words[0]] = {0, words[0], probability, backoff};
    return true;
  }
  const size_t n = words.size() - 1;
  size_t same = 0;
  while (same < path_.size() && same < n && path_words_[same] == words[same]) ++same;
  path_.resize(same);
  path_words_.resize(same);
  for (size_t k = same; k < n; ++k) {
    uint64_t entry = words[k];
    if (k > 0) {
      const auto below = static_cast<int32_t>(k);
      const uint64_t end = first_arc(below, path_.back() + 1);
      entry = find(below + 1, first_arc(below, path_.back()), end, words[k]);
      if (entry == end) return false;
    }
    path_.push_back(static_cast<uint32_t>(entry));
    path_words_.push_back(words[k]);
  }
  entries.push_back({path_.back(), words[n], probability, backoff});
  return true;
}

std::string NgramTable::spelled(int32_t order, const Entry& entry) const {
  std::string text(vocabulary_.text(entry.word));
  uint32_t parent = entry.link;
  for (int32_t k = order - 1; k >= 1; --k) {
    text = str(vocabulary_.text(level(k).entries[parent].word), " ", text);
    // Links of finished levels are no parents any more: the arcs say whose they are.
    if (k == 1) break;
    const std::vector<uint32_t>& first = level(k - 1).first_arc;
    parent = static_cast<uint32_t>(std::upper_bound(first.begin(), first.end(), parent) -
                                   first.begin() - 1);
  }
  return text;
}

void NgramTable::sort_level(int32_t order) {
  std::vector<Entry>& entries = level(order).entries;
  const auto less = [](const Entry& a, const Entry& b) {
    return (uint64_t{a.link} << 32 | a.word) < (uint64_t{b.link} << 32 | b.word);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), less)) {
    std::sort(entries.begin(), entries.end(), less);
  }
  const auto twice = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.link == b.link && a.word == b.word; });
  if (twice != entries.end()) {
    fail_input("the ", order, "-gram ", quoted_start(spelled(order, *twice)),
               " stands there twice");
  }
  std::vector<uint32_t>& first = level(order - 1).first_arc;
  first.assign(level(order - 1).entries.size() + 1, 0);
  for (const Entry& e : entries) ++first[e.link + 1];
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
}

void NgramTable::finish_level(int32_t order) {
  Level& l = level(order);
  l.first_place = order == 1 ? 1 : level(order - 1).first_place + level(order - 1).entries.size();
  path_.clear();
  path_words_.clear();
  if (order == 1) return;  // in the order of the words, with links to the empty context
  sort_level(order);
  for (uint64_t parent = 0; parent < level(order - 1).entries.size(); ++parent) {
    link_arcs(order, parent);
  }
}

// Each arc out of an entry of the order before: its longest proper suffix that is a state.
void NgramTable::link_arcs(int32_t order, uint64_t parent) {
  const uint32_t begin = first_arc(order - 1, parent), end = first_arc(order - 1, parent + 1);
  const uint32_t suffix = level(order - 1).entries[parent].link;
  uint64_t hint = 0;
  for (uint64_t i = begin; i < end; ++i) {
    Entry& e = level(order).entries[i];
    for (uint32_t state = suffix;;) {
      if (state == 0) {
        e.link = target(1, e.word);
        break;
      }
      const int32_t length = order_of(state);
      const uint64_t entry = state - first_place(length);
      const uint64_t first = first_arc(length, entry), last = first_arc(length, entry + 1);
      const uint64_t from = state == suffix ? std::max(hint, first) : first;
      const uint64_t found = from < last ? find(length + 1, from, last, e.word) : last;
      if (found != last) {
        if (state == suffix) hint = found;
        e.link = target(length + 1, found);
        break;
      }
      state = level(length).entries[entry].link;
    }
  }
}

bool NgramTable::is_state(int32_t order, uint64_t entry) const {
  if (order == 0) return true;
  if (order == this->order()) return false;
  const Level& l = level(order);
  return l.first_arc[entry] != l.first_arc[entry + 1] || l.entries[entry].backoff != 0;
}

int32_t NgramTable::order_of(uint32_t place) const {
  int32_t order = 1;
  while (order < open_ && level(order + 1).first_place <= place &&
         level(order + 1).first_place != 0) {
    ++order;
  }
  return order;
}

void NgramTable::end() {
  while (open_ <= order()) finish_level(open_++);
  open_ = order();
  mark_states();
}

void NgramTable::mark_states() {
  const uint64_t places = level(order()).first_place;
  is_state_.assign(places / 64 + 1, 0);
  is_state_[0] = 1;
  for (int32_t k = 1; k < order(); ++k) {
    for (uint64_t i = 0; i < level(k).entries.size(); ++i) {
      const uint64_t p = first_place(k) + i;
      if (is_state(k, i)) is_state_[p / 64] |= uint64_t{1} << (p % 64);
    }
  }
  uint32_t before = 0;
  for (const uint64_t bits : is_state_) {
    states_before_.push_back(before);
    before += static_cast<uint32_t>(std::popcount(bits));
  }
  states_before_.push_back(before);
}

uint32_t NgramTable::state_number(uint32_t place) const {
  const uint64_t below = is_state_[place / 64] & ((uint64_t{1} << (place % 64)) - 1);
  return states_before_[place / 64] + static_cast<uint32_t>(std::popcount(below));
}

uint64_t NgramTable::states(int32_t words) const {
  const uint64_t last = first_place(words + 1);
  const uint64_t first = words == 0 ? 0 : first_place(words);
  return state_number(static_cast<uint32_t>(last)) - state_number(static_cast<uint32_t>(first));
}

}  // namespace rondo::lm
