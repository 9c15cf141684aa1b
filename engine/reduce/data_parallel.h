// Data parallelism: every rank holds the whole model and its own share of each batch; gradients
// and counts are summed over the ranks before the update, and divided once by the global count, so
// the result does not depend on how utterances were spread over ranks.
//
// Gradients must be in host memory. One thread at a time. Throws CommError when a rank fails.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "engine/session.h"

namespace rondo {

// Some rank could not compute its share of an update: on all ranks the update does not take place,
// and the weights are those before it.
class UpdateWithdrawn : public Error {
 public:
  UpdateWithdrawn() : Error("a rank has withdrawn from this update") {}
};

// What the reducers share: counts, and a ballot that travels with them.
class RankReducer : public GradientReducer {
 public:
  // Borrows the group.
  RankReducer(ProcessGroup& group, size_t ballot) : group_(group), ballot_(ballot) {}

  // The batch that runs next is the last one of the update.
  virtual void last_batch() {}

  // Set before reduce(); afterwards the sums over all ranks.
  std::span<double> ballot() { return ballot_; }

  void reduce(TensorView gradients, std::span<double> counts) final;
  // Instead of an update: takes part in it without contributing, and ends it, as every rank's
  // reduce() does, with UpdateWithdrawn. `counts` as many as the others reduce.
  [[noreturn]] void withdraw(TensorView gradients, size_t counts);

  // Seconds in which gradients were on their way, and the part of them during which this rank had
  // nothing else to do; since the start. Of devices that the host does not wait for also those that
  // were neither spent on communication nor on waiting for it, up to the last applied().
  struct Times {
    double communication = 0, exposed = 0;
    double computed = 0;
    // From 0 to 1: a rank may see the end of its wait a moment after the communication's.
    double hidden_share() const {
      return communication > 0 ? std::clamp(1 - exposed / communication, 0.0, 1.0) : 0;
    }
  };
  const Times& times() const { return times_; }

 protected:
  virtual void sum_gradients(TensorView gradients) = 0;
  // A withdrawing rank's part in what enqueue() sums besides.
  virtual void sum_nothing() {}
  // Sums `counts` and the ballot; throws UpdateWithdrawn where a rank has withdrawn.
  void sum_counts(std::span<double> counts, bool withdrawn);
  ProcessGroup& group() { return group_; }
  Times times_;

 private:
  ProcessGroup& group_;
  std::vector<double> ballot_, message_;
};

// Ring all-reduce over a process group, in one piece, after the backward pass.
class GroupReducer final : public RankReducer {
 public:
  explicit GroupReducer(ProcessGroup& group, size_t ballot = 0) : RankReducer(group, ballot) {}

 protected:
  void sum_gradients(TensorView gradients) override;
};

// The same starting weights everywhere: rank 0's.
void broadcast_weights(ProcessGroup& group, Parameters& parameters);

}  // namespace rondo
