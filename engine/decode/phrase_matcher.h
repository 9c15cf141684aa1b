// Finds phrases in a sequence of symbols while it grows, with credit for phrases that have begun.
// For decode/ alone.
//
// Algorithm: Aho and Corasick 1975. What a sequence is worth is the weight of every phrase in it,
// once for each place where it stands, and, of the phrases that its end is a beginning of, the
// largest share weight * symbols there / symbols in all. A step changes that by the difference of
// two numbers of states, so its cost does not grow with the number of phrases. (Phrases of negative
// weight are counted when they are complete.)
//
// Weights are natural logarithms; gains their exponentials.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace rondo::decode {

class PhraseMatcher {
 public:
  struct Phrase {
    std::vector<int32_t> symbols;  // one at least, 0 or more
    double weight = 0;
  };

  PhraseMatcher() = default;
  explicit PhraseMatcher(std::span<const Phrase> phrases);

  bool empty() const { return states_.empty(); }
  // From state 0, which nothing has been seen in. Multiplies `gain` by what the symbol brings.
  int32_t step(int32_t state, int32_t symbol, double& gain) const {
    const State& before = states_[static_cast<size_t>(state)];
    int32_t next;
    while ((next = child(state, symbol)) < 0 && state != 0)
      state = states_[static_cast<size_t>(state)].shorter;
    if (next < 0) next = 0;
    gain *= before.inverse_credit * states_[static_cast<size_t>(next)].arrival;
    return next;
  }
  // The last symbol seen, where the state is not 0.
  int32_t symbol(int32_t state) const { return states_[static_cast<size_t>(state)].symbol; }
  // Calls `take(symbol)` for what goes on with some of what has been seen; a symbol may come twice.
  template <class Take>
  void for_continuations(int32_t state, const Take& take) const {
    for (; state != 0; state = states_[static_cast<size_t>(state)].shorter) {
      const State& s = states_[static_cast<size_t>(state)];
      for (int32_t c = s.first_child; c < s.end_child; ++c)
        take(states_[static_cast<size_t>(c)].symbol);
    }
  }
  // No phrase goes on: takes the credit back.
  double end_gain(int32_t state) const {
    return states_[static_cast<size_t>(state)].inverse_credit;
  }

 private:
  struct State {
    int32_t symbol = -1;
    int32_t first_child = 0, end_child = 0;
    int32_t shorter = 0;  // the longest other suffix that some phrase begins with
    double arrival = 1;   // of the phrases that end here, and the credit
    double inverse_credit = 1;
  };

  int32_t child(int32_t state, int32_t symbol) const {
    const State& s = states_[static_cast<size_t>(state)];
    int32_t low = s.first_child, high = s.end_child;
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      if (states_[static_cast<size_t>(middle)].symbol < symbol) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < s.end_child && states_[static_cast<size_t>(low)].symbol == symbol ? low : -1;
  }

  std::vector<State> states_;  // level by level
};

}  // namespace rondo::decode
