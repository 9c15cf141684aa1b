// The weighted mean, over ranks, of weights and of the optimiser's state.
#pragma once

#include <functional>
#include <vector>

#include "engine/reduce/host_array.h"
#include "engine/reduce/ranks.h"
#include "engine/session.h"

namespace rondo {

// What an optimiser changes, of one session; and a copy of it in host memory.
class TrainedState {
 public:
  explicit TrainedState(Session& session);
  // The session's, as they are now.
  void take();
  // The other way.
  void put_back();

  size_t weights() const { return copies_.front().size(); }

  // Replaces the session's weights and optimiser state, and then the copy, by their means over
  // ranks, this rank's counting `share` of 1. To the mean of the differences from the copied
  // weights, the same on all ranks, `outer` may do what it likes before it is added to the copy.
  // Returns the distance of this rank's weights from the mean, as a part of the mean's norm.
  double average(const Ranks& ranks, double share,
                 const std::function<void(std::span<float> difference)>& outer = {});

 private:
  void fetch();
  void store();
  void copy_live();

  Session& session_;
  std::vector<HostArray> live_;  // weights first
  std::vector<std::vector<float>> copies_;
  std::vector<float> work_;
  int64_t steps_ = 0;
};

}  // namespace rondo
