#include "engine/decode/word_trie.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/base/error.h"

namespace rondo::decode {

WordTrie::WordTrie(std::vector<Entry> entries) {
  for (Entry& e : entries)
    for (int32_t& symbol : e.symbols)
      symbol = numbers_.try_emplace(symbol, static_cast<int32_t>(numbers_.size())).first->second;
  few_symbols_ = numbers_.size() <= 63;
  const auto key = [](const Entry& e) { return std::tie(e.symbols, e.word); };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [&](const Entry& a, const Entry& b) { return key(a) == key(b); }),
                entries.end());
  // The entries below a place are in a row, since they are sorted.
  struct Part {
    size_t begin, end, depth;
  };
  std::vector<Part> parts = {{0, entries.size(), 0}};
  places_.emplace_back();
  for (size_t n = 0; n < parts.size(); ++n) {
    auto [begin, end, depth] = parts[n];
    Place place = places_[n];
    double most = -std::numeric_limits<double>::infinity();
    for (size_t i = begin; i < end; ++i) most = std::max(most, entries[i].weight);
    if (n > 0) {
      place.gain = std::exp(most);
      place.inverse_gain = std::exp(-most);
      most_gain_ = std::max(most_gain_, place.gain);
    }
    place.first_word = static_cast<int32_t>(words_.size());
    for (; begin < end && entries[begin].symbols.size() == depth; ++begin)
      words_.push_back(entries[begin].word);
    place.words = static_cast<int32_t>(words_.size()) - place.first_word;
    place.first_child = static_cast<int32_t>(places_.size());
    while (begin < end) {
      const int32_t number = entries[begin].symbols[depth];
      size_t last = begin;
      while (last < end && entries[last].symbols[depth] == number) ++last;
      if (few_symbols_) place.children |= uint64_t{1} << number;
      RONDO_CHECK(places_.size() < INT32_MAX, "a lexicon of more than ", INT32_MAX, " places");
      places_.emplace_back();
      places_.back().number = number;
      parts.push_back({begin, last, depth + 1});
      begin = last;
    }
    place.end_child = static_cast<int32_t>(places_.size());
    places_[n] = place;
  }
}

}  // namespace rondo::decode
