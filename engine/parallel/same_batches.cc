#include "engine/parallel/same_batches.h"

#include <vector>

#include "kernels/base/hash.h"

namespace rondo {

void SameBatches::begin(uint64_t content) { content_ = fnv1a(content_, content); }

void SameBatches::vote(std::span<double, votes> own) const {
  own[0] = static_cast<double>(checksum());
  own[1] = own[0] * own[0];
}

// All numbers are the same if and only if n times the sum of their squares is the square of their
// sum (Cauchy and Schwarz).
void SameBatches::require(const Ranks& ranks, std::span<const double, votes> sums,
                          int64_t step) const {
  const auto sum = static_cast<uint64_t>(sums[0]), squares = static_cast<uint64_t>(sums[1]);
  if (static_cast<uint64_t>(ranks.size()) * squares == sum * sum) return;
  std::vector<double> of_rank(static_cast<size_t>(ranks.size()));
  of_rank[static_cast<size_t>(ranks.rank())] = static_cast<double>(checksum());
  ranks.sum(of_rank);
  ranks.together([&] {
    if (of_rank[static_cast<size_t>(ranks.rank())] == of_rank[0]) return;
    fail_input("at step ", step, " its batch is not that of rank 0: other utterances, or other ",
               "lengths or labels; nothing was saved since the last checkpoint");
  });
}

}  // namespace rondo
