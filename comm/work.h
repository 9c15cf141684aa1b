// Work: the handle of one asynchronous communication.
//
// Ownership: the memory of the operation belongs to the caller and must stay alive (and, for sends,
// unchanged) until the operation is done. An operation is done when it has succeeded or failed;
// from then on nobody touches its memory. Work is move-only; destroying an unfinished Work
// withdraws the operation first, so unwinding through a Work and then its buffer is safe.
//
// Thread safety: one thread at a time uses a Work.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/error.h"

namespace rondo {

using CommClock = std::chrono::steady_clock;
using Deadline = CommClock::time_point;

inline Deadline within(CommClock::duration duration) { return CommClock::now() + duration; }

namespace detail {
class WorkState;  // what a backend implements
}

class [[nodiscard]] Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Work that is done already: a collective of one rank.
  static Work nothing_to_do();

  explicit operator bool() const { return state_ != nullptr; }

  // Blocks until the operation is done; throws its CommError if it failed. An operation that is
  // not done by its own deadline (or by the earlier one given here) fails with a timeout.
  void wait();
  void wait(Deadline deadline);

  // True when done (a passed deadline counts: the operation then fails with a timeout).
  bool poll();

  // Once done: what went wrong, if anything.
  std::optional<CommError> error() const;

  // Once done: the bytes this rank moved: sent or received by a point-to-point operation, sent by a
  // collective.
  size_t bytes() const;

  // When the operation began (point-to-point: when it was posted; a collective: when its turn
  // came) and when it was done.
  CommClock::time_point start() const;
  CommClock::time_point end() const;

  // This is for code that builds operations out of others.
  const std::shared_ptr<detail::WorkState>& shared_state() const { return state_; }

 private:
  detail::WorkState& state() const;
  void drop() noexcept;
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace rondo
