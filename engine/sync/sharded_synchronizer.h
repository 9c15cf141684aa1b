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
// Sums begin during the backward pass, bucket by bucket, as those of BucketReducer, on devices too.
// The update waits for the sum of squares over all ranks, and the host for the weights to come
// back.
//
// Memory of a rank, beside weights and gradients: 1/N of the optimiser's state, 1/N of the weights
// twice more, buckets of the size of the gradients, and an array of the size of the weights for
// what is on its way. Traffic is that of an all-reduce.
//
// Checkpoints hold the whole state, as those of other ways to train do.
#pragma once

#include <memory>

#include "engine/reduce/data_parallel.h"
#include "engine/reduce/ranks.h"
#include "engine/reduce/shard_layout.h"
#include "engine/sync/synchronizer.h"

namespace rondo {

class ShardedSynchronizer final : public SessionSynchronizer {
 public:
  // The session is made with without_state(): its own optimiser counts updates, measures gradients
  // and decides which to skip, at a rate of 0; the one of this rank's part of the weights does the
  // rest, as `options` say, at the rate the session was given for the update.
  static OptimizerOptions without_state(const OptimizerOptions& options);
  // `reducer` leaves each rank the sums of its own blocks.
  ShardedSynchronizer(Session& session, const OptimizerOptions& options, const Ranks& ranks,
                      std::unique_ptr<RankReducer> reducer);
  ~ShardedSynchronizer() override;

  DataShare share() const override;
  void accumulate(const BatchView& batch, int shard, bool last) override;
  bool apply(const Update& update) override;
  void swap_average() override;
  std::vector<Optimizer::Slot> gather_state() override;
  void restore(const Ranks& ranks, const ReadSlot& read) override;
  void restart() override;
  // The bytes of this rank's part of the optimiser's state.
  size_t optimizer_bytes() const { return optimizer_.bytes(); }
  RankReducer::Times times() const override;

 private:
  // What each rank has in its place of parts_, on all of them.
  void gather_parts();
  // What each rank has in `part`, as the session's weights.
  void gather_weights(const TensorView& part);
  void update_part(double rate);
  double sum_of_squares();
  const Context& context() const { return session().context(); }
  Device& device() const { return *context().device; }
  std::byte* place_of(int rank) {
    return parts_.as<std::byte>() + static_cast<size_t>(rank) * part_bytes();
  }
  size_t part_bytes() const { return static_cast<size_t>(layout_.part()) * sizeof(float); }

  const Ranks ranks_;
  const ShardLayout layout_;
  Parameters part_;      // this rank's weights and gradients
  Optimizer optimizer_;  // of these
  double squares_ = 0;   // of the gradients of all ranks
  Buffer parts_;         // of all ranks, one after the other
  Buffer scratch_;       // the sum of squares of the own part, and what finding it needs
  std::vector<std::vector<float>> whole_;  // rank 0: the state, while it is written
  std::unique_ptr<RankReducer> reducer_;
  RankReducer::Times gathering_;
  bool averaged_ = false;  // the session's weights are the average
};

}  // namespace rondo
