#include "engine/decode/phrase_matcher.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo::decode {

PhraseMatcher::PhraseMatcher(std::span<const Phrase> phrases) {
  if (phrases.empty()) return;
  std::vector<const Phrase*> sorted;
  for (const Phrase& p : phrases) {
    RONDO_CHECK(!p.symbols.empty() && std::isfinite(p.weight), "a phrase of ", p.symbols.size(),
                " symbols with the weight ", p.weight);
    sorted.push_back(&p);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Phrase* a, const Phrase* b) { return a->symbols < b->symbols; });
  // Of those that are there twice the last one counts, and nothing of the others.
  const auto others = std::unique(sorted.rbegin(), sorted.rend(),
                                  [](auto* a, auto* b) { return a->symbols == b->symbols; });
  sorted.erase(sorted.begin(), others.base());
  struct Part {
    size_t begin, end, depth;
  };
  std::vector<Part> parts = {{0, sorted.size(), 0}};
  // Of each state: the weights of the phrases that end in it, and the credit of those that go on.
  std::vector<double> ends, credits;
  states_.emplace_back();
  for (size_t n = 0; n < parts.size(); ++n) {
    auto [begin, end, depth] = parts[n];
    double ending = 0, credit = 0;
    if (begin < end && sorted[begin]->symbols.size() == depth) ending = sorted[begin++]->weight;
    for (size_t i = begin; i < end; ++i) {
      credit = std::max(credit, sorted[i]->weight * static_cast<double>(depth) /
                                    static_cast<double>(sorted[i]->symbols.size()));
    }
    ends.push_back(ending);
    credits.push_back(credit);
    states_[n].first_child = static_cast<int32_t>(states_.size());
    while (begin < end) {
      const int32_t symbol = sorted[begin]->symbols[depth];
      size_t last = begin;
      while (last < end && sorted[last]->symbols[depth] == symbol) ++last;
      states_.push_back({.symbol = symbol, .shorter = static_cast<int32_t>(n)});
      parts.push_back({begin, last, depth + 1});
      begin = last;
    }
    states_[n].end_child = static_cast<int32_t>(states_.size());
  }
  // `shorter` is still the parent; the states above have theirs already.
  for (size_t n = 1; n < states_.size(); ++n) {
    const int32_t parent = states_[n].shorter;
    int32_t shorter = 0;
    for (int32_t s = parent; s != 0;) {
      s = states_[static_cast<size_t>(s)].shorter;
      const int32_t found = child(s, states_[n].symbol);
      if (found >= 0) {
        shorter = found;
        break;
      }
    }
    states_[n].shorter = shorter;
    ends[n] += ends[static_cast<size_t>(shorter)];
    credits[n] = std::max(credits[n], credits[static_cast<size_t>(shorter)]);
    states_[n].arrival = std::exp(ends[n] + credits[n]);
    states_[n].inverse_credit = std::exp(-credits[n]);
  }
}

}  // namespace rondo::decode
