// Data parallelism: every rank holds the whole model and its own batches; gradients and counts are
// summed over the ranks before the update, and divided once by the global count, so the result
// does not depend on how utterances were spread over ranks.
#pragma once

#include "comm/process_group.h"
#include "engine/session.h"

namespace rondo {

// Ring all-reduce over a process group, in one piece. Borrows the group; one thread at a time.
// Throws CommError when a rank fails. Gradients must be in host memory.
class GroupReducer final : public GradientReducer {
 public:
  explicit GroupReducer(ProcessGroup& group) : group_(group) {}
  void reduce(TensorView gradients, std::span<double> counts) override;

 private:
  ProcessGroup& group_;
};

// The same starting weights everywhere: rank 0's.
void broadcast_weights(ProcessGroup& group, Parameters& parameters);

}  // namespace rondo
