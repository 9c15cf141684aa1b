// A tree of words, walked symbol by symbol. For decode/ alone.
//
// Each place knows the most that can be had of the words below it (their weights are natural
// logarithms), so that a search can take that into account before a word is over; flashlight calls
// it smearing, Ortmanns et al. 1996 language model look-ahead.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace rondo::decode {

class WordTrie {
 public:
  static constexpr int32_t root = 0, nowhere = -1;

  struct Entry {
    std::vector<int32_t> symbols;  // one at least
    int32_t word = 0;
    double weight = 0;
  };

  WordTrie() = default;
  explicit WordTrie(std::vector<Entry> entries);

  bool empty() const { return places_.empty(); }
  // What child() wants for a symbol; none for one that no word has.
  int32_t number(int32_t symbol) const {
    const auto at = numbers_.find(symbol);
    return at == numbers_.end() ? nowhere : at->second;
  }
  int32_t child(int32_t place, int32_t number) const {
    const Place& p = places_[static_cast<size_t>(place)];
    if (number == nowhere) return nowhere;
    if (few_symbols_) {
      const uint64_t bit = uint64_t{1} << number;
      return p.children & bit ? p.first_child + std::popcount(p.children & (bit - 1)) : nowhere;
    }
    int32_t low = p.first_child, high = p.end_child;
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      if (places_[static_cast<size_t>(middle)].number < number) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < p.end_child && places_[static_cast<size_t>(low)].number == number ? low : nowhere;
  }
  // Whether numbers are below 63, so that children() has a bit for each.
  bool has_few_symbols() const { return few_symbols_; }
  uint64_t children(int32_t place) const { return places_[static_cast<size_t>(place)].children; }
  // The words that end here, in the order of their numbers.
  std::span<const int32_t> words(int32_t place) const {
    const Place& p = places_[static_cast<size_t>(place)];
    return std::span(words_).subspan(static_cast<size_t>(p.first_word),
                                     static_cast<size_t>(p.words));
  }
  // The exponential of the largest weight of the words from here on, and of minus that.
  double gain(int32_t place) const { return places_[static_cast<size_t>(place)].gain; }
  double inverse_gain(int32_t place) const {
    return places_[static_cast<size_t>(place)].inverse_gain;
  }
  double most_gain() const { return most_gain_; }  // of any place

 private:
  struct Place {
    uint64_t children = 0;  // a bit for each number, where there are few
    int32_t number = 0;
    int32_t first_child = 0, end_child = 0;
    int32_t first_word = 0, words = 0;
    double gain = 1, inverse_gain = 1;
  };

  std::vector<Place> places_;  // level by level, so that the children of one are in a row
  std::vector<int32_t> words_;
  std::unordered_map<int32_t, int32_t> numbers_;  // of symbols
  bool few_symbols_ = false;                      // 63 at most
  double most_gain_ = 0;
};

}  // namespace rondo::decode
