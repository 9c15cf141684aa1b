// Shared updates with the optimiser's state divided over the ranks: each sums its part of the
// gradients (reduce-scatter), updates its part of the weights, and gets the other parts
// (all-gather). After S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", SC 2020, stage 1.
//
// Parts are made of blocks of 256 elements of the flat arrays; block b belongs to rank (b - 1) mod
// N. So every element is summed in the order in which BucketReducer sums it, and the weights are
// those of StepSynchronizer with a BucketReducer, bit for bit, as long as the gradient is not
// clipped: the sum of its squares is added up in another order, which may change a clipped
// gradient's last bits.
//
// Memory of a rank, beside weights and gradients: 1/N of the optimiser's state, 1/N of the weights
// once more, and an array of the size of the weights for what is on its way. Traffic is that of an
// all-reduce. Nothing is sent before the backward pass is over.
//
// Checkpoints hold the whole state, as those of other ways to train do. Host memory only.
#pragma once

#include "engine/parallel/ranks.h"
#include "engine/parallel/synchronizer.h"

namespace rondo {

// Where the blocks of flat arrays lie in the parts of N ranks. Parts are of equal size; what a rank
// has too few blocks for stays unused.
class ShardLayout {
 public:
  static constexpr int64_t block_elements = 256;
  ShardLayout(int64_t flat_size, int ranks) : flat_size_(flat_size), ranks_(ranks) {}
  // Elements of a part.
  int64_t part() const;
  // copy(place in the flat array, place in the part, elements) for the blocks of a rank.
  template <class Copy>
  void for_blocks(int rank, Copy copy) const {
    int64_t place = 0;
    for (int64_t b = (rank + 1) % ranks_; b * block_elements < flat_size_; b += ranks_) {
      const int64_t begin = b * block_elements;
      copy(begin, place, std::min(block_elements, flat_size_ - begin));
      place += block_elements;
    }
  }

 private:
  const int64_t flat_size_;
  const int ranks_;
};

class ShardedSynchronizer final : public Synchronizer {
 public:
  // The session's optimiser was made for one of as many parts as there are ranks.
  ShardedSynchronizer(Session& session, const Ranks& ranks, size_t ballot);
  ~ShardedSynchronizer() override;

  DataShare share() const override;
  bool apply(const Update& update) override;
  bool meet(const Update&) override { return true; }
  void swap_average() override;
  std::vector<Optimizer::Slot> gather_state() override;
  void restore(const ReadSlot& read) override;
  void restart() override;
  RankReducer::Times times() const override;

 private:
  class Reducer;
  void take_own(const float* flat, float* part) const;
  // What each rank has in `part`, as the session's weights.
  void gather_weights(const float* part);
  double sum_of_squares();

  const Ranks ranks_;
  const ShardLayout layout_;
  std::vector<float> weights_;             // this rank's part
  std::vector<float> parts_;               // of all ranks, one after the other
  std::vector<std::vector<float>> whole_;  // rank 0: the state, while it is written
  std::unique_ptr<Reducer> reducer_;
  bool averaged_ = false;  // the session's weights are the average
};

}  // namespace rondo
