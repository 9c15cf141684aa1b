// An optimiser whose state is divided over the ranks that hold the same weights: each updates its
// part of them and gets the other parts. After S. Rajbhandari et al., "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models", SC 2020, stage 1, with whole gradients on every rank.
//
// The weights are those of an Optimizer on every rank, bit for bit. Memory of a rank: 1/N of the
// optimiser's state, 1/N of weights and gradients once more, and an array of the size of the
// weights for what is on its way. Traffic: the weights, once per update, beside the gradients' sum.
//
// On any device; the host waits for the weights to come back. All ranks of the group make the same
// calls; one thread at a time. Throws CommError when a rank is gone or late.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/optimizer.h"
#include "engine/reduce/shard_layout.h"

namespace rondo {

class ShardedOptimizer {
 public:
  // Borrows the parameters, the groups and what the context points to. `devices`: of the same ranks
  // as the group; nullptr where that one reaches the parameters' memory, the host's. InputError
  // where there is neither.
  ShardedOptimizer(const OptimizerOptions& options, Parameters& parameters, const Context& context,
                   ProcessGroup& group, DeviceGroup* devices = nullptr);

  // The optimiser of this rank's part.
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }

  // With the same gradients in the parameters of all ranks: an update of the weights on all.
  Optimizer::Result apply(double count);

  // After weights were set, the same on all ranks.
  void take_weights();
  // Exchanges the parameters' weights and their moving average, if there is one; again to go back.
  void swap_average();

  // A slot of the optimiser's state, laid out as the parameters' flat arrays; on all ranks.
  std::vector<float> gather(const std::string& slot);
  void set(const std::string& slot, std::span<const float> flat);

 private:
  TensorView slot(const std::string& name) const;
  // `part` of each rank, in parts_ of all of them.
  void gather_parts(const TensorView& part);
  void gather_weights(const TensorView& part);
  void copy_own(const TensorView& flat, const TensorView& part) const;
  size_t part_bytes() const { return static_cast<size_t>(layout_.part()) * sizeof(float); }
  std::byte* place_of(int rank) const {
    return parts_.as<std::byte>() + static_cast<size_t>(rank) * part_bytes();
  }

  Parameters& whole_;
  const Context context_;
  ProcessGroup& group_;
  DeviceGroup* const devices_;
  const ShardLayout layout_;
  Parameters part_;  // this rank's weights and gradients
  Optimizer optimizer_;
  Buffer parts_;           // of all ranks, one after the other
  bool averaged_ = false;  // the weights of the parameters are the average
};

}  // namespace rondo
