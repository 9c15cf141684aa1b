// What ranks agree on besides sums: did this succeed everywhere, what does rank 0 say.
//
// Every rank makes the same calls in the same order. All of them take part in every agreement, so a
// rank that fails does not leave the others waiting: it says so, and all stop with its message.
//
// Thread safety: one thread at a time. Errors: CommError when a rank is gone or late, PeerFailed
// when another one failed and said why.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/group/device_group.h"
#include "comm/in_process/run_ranks.h"
#include "kernels/base/error.h"

namespace rondo {

// Another rank failed; the message begins with "rank N: ". That rank reports it.
class PeerFailed : public Error {
 public:
  PeerFailed(int rank, const std::string& message)
      : Error(str("rank ", rank, ": ", message)), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

// What stopped all ranks alike: a file that nobody finds, say. All of them throw it.
class CommonFailure : public InputError {
 public:
  using InputError::InputError;
};

class Ranks {
 public:
  // A single rank, which agrees with itself.
  Ranks() = default;
  // Borrows the groups. An agreement waits so long for the slowest rank. `sums`: of the same ranks,
  // for gradients on devices.
  Ranks(ProcessGroup& group, CommClock::duration patience, DeviceGroup* sums = nullptr)
      : group_(&group), sums_(sums), patience_(patience) {}

  int rank() const { return group_ ? group_->rank() : 0; }
  int size() const { return group_ ? group_->size() : 1; }
  bool first() const { return rank() == 0; }
  // nullptr for a single rank.
  ProcessGroup* group() const { return group_; }
  // nullptr for ranks on cpus.
  DeviceGroup* sums() const { return sums_; }

  // Runs `action` here, then waits for all ranks. Where it threw, it throws again; if it threw on
  // other ranks only, PeerFailed with the message of the lowest of them. An InputError of the same
  // words on all becomes a CommonFailure. A CommError is thrown at once: there is nobody to agree
  // with.
  void together(const std::function<void()>& action) const;
  // together() with an action of rank 0 alone.
  void at_first(const std::function<void()>& action) const;
  // The same of what rank 0 reads for all: an InputError becomes a CommonFailure.
  void read_at_first(const std::function<void()>& action) const;

  // Element by element, over all ranks.
  void sum(std::span<double> values) const;
  void sum(std::span<float> values) const;
  // Rank 0's.
  void broadcast(const TensorView& data) const;
  // The same for memory of a device.
  void broadcast(const TensorView& data, Device& device) const;
  std::string broadcast(const std::string& text) const;
  // By rank on rank 0, empty elsewhere.
  std::vector<std::string> gather(const std::string& text) const;

 private:
  void agree(const std::function<void()>& action, bool is_for_all) const;
  Deadline deadline() const { return within(patience_); }
  ProcessGroup* group_ = nullptr;
  DeviceGroup* sums_ = nullptr;
  CommClock::duration patience_ = std::chrono::minutes(5);
};

// Throws what was wrong on ranks that ran in this process, rather than what others said or saw of
// it; the lowest rank's, with "rank N: " before the message unless it is common to all. Returns
// when all succeeded.
void rethrow_cause(const RankOutcome& outcome);

}  // namespace rondo
