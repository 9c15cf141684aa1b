// Estimates an n-gram model from counts: modified Kneser-Ney smoothing, interpolated.
//
//   p(w | h) = (a(hw) - D(a(hw))) / sum_x a(hx) + gamma(h) p(w | h'),   h' = h without its first
//   word gamma(h) = sum_x (D(a(hx)), or a(hx) where hx was pruned) / sum_x a(hx)
//
// a: of the highest order, and of n-grams that begin with <s>, how often they occur; of the others,
// how many different words stand before them. D: three discounts for each order, for a = 1, a = 2
// and a >= 3, out of how many n-grams have a = 1, 2, 3 and 4. Unigrams are interpolated with the
// uniform distribution over all words but <s>, <unk> among them. (Chen and Goodman 1998; as a
// sequence of sorts: Heafield et al. 2013, "Scalable Modified Kneser-Ney Language Model
// Estimation".)
//
// Errors: InputError. Thread safety: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/lm/arpa.h"
#include "engine/lm/record_sorter.h"

namespace rondo::lm {

struct EstimationOptions {
  int32_t order = 3;
  // Of each order: n-grams that occur so often or more rarely are left out. The last one holds for
  // higher orders; none: nothing is.
  std::vector<int64_t> prune;
  // For orders whose discounts cannot be estimated.
  std::optional<std::array<double, 3>> fallback;
  uint64_t memory = uint64_t{2} << 30;
  std::string folder;  // of temporary files
};

struct OrderEstimate {
  uint64_t found = 0, kept = 0;  // n-grams
  std::array<double, 3> discounts{};
  bool fell_back = false;
};

// Words <s> and </s> by their numbers; <unk> is 0 and occurs in no sentence.
class KneserNey {
 public:
  KneserNey(EstimationOptions options, Word begin, Word end);
  // A sentence's words, without <s> and </s>.
  void add_sentence(std::span<const Word> words);
  // After the last one: gives the model's n-grams to `sink`. `words`: how many there are.
  void estimate(Word words, NgramSink& sink);

  const std::vector<OrderEstimate>& orders() const { return orders_; }
  uint64_t spilled_bytes() const { return spilled_; }

 private:
  struct Adjuster;
  // With this share of the memory.
  RecordSorter sorter(int32_t keys, int32_t values, double share, bool add_up = false) const;
  int64_t pruned_at(int32_t order) const;
  void adjust_counts();
  void find_discounts();
  void discount(int32_t order);
  void interpolate(int32_t order, Word words, NgramSink& sink);
  OrderEstimate& estimate_of(int32_t order) { return orders_[static_cast<size_t>(order - 1)]; }

  EstimationOptions options_;
  Word begin_, end_;
  std::vector<OrderEstimate> orders_;
  std::vector<std::array<uint64_t, 5>> counts_of_counts_;  // of each order; 0 is not used
  uint64_t spilled_ = 0;
  std::vector<Word> padded_;
  std::unique_ptr<RecordSorter> windows_;
  // Of each order. By context: w_n-1 ... w_1 w_n, adjusted count (the highest bit: pruned). By
  // suffix: w_n ... w_1, discounted probability, gamma of the context. Backed off: gamma by
  // w_n ... w_1, which are a context. The last order's probabilities, by suffix.
  std::vector<RecordSorter> by_context_, by_suffix_, gammas_;
  std::unique_ptr<RecordSorter> lower_;
};

}  // namespace rondo::lm
