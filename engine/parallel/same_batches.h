// Whether all ranks train on the same batches. A checksum of all that a rank has begun so far
// travels with the votes of every update, as two more numbers that are summed.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "engine/reduce/ranks.h"

namespace rondo {

class SameBatches {
 public:
  static constexpr size_t votes = 2;

  // An update begins, for all ranks, on utterances of this content.
  void begin(uint64_t content);
  void vote(std::span<double, votes> own) const;
  // `sums`: of the votes of all ranks. Where they tell that not all are the same, all ranks stop:
  // throws InputError on those whose batches are not those of rank 0, PeerFailed on the others. A
  // difference is missed once in 65536 times, and then shows in the next update.
  void require(const Ranks& ranks, std::span<const double, votes> sums, int64_t step) const;

 private:
  // 16 bits: so the sums, and what is computed of them, are exact for up to 65536 ranks.
  uint64_t checksum() const { return (content_ ^ content_ >> 16 ^ content_ >> 32) & 0xffff; }
  uint64_t content_ = 0;
};

}  // namespace rondo
