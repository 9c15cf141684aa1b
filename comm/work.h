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
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/error.h"

namespace rondo {

using CommClock = std::chrono::steady_clock;
using Deadline = CommClock::time_point;

inline Deadline within(CommClock::duration duration) { return CommClock::now() + duration; }

namespace detail {

// What a backend implements. Shared by the Work and whoever carries the operation out.
class WorkState {
 public:
  WorkState(std::string description, Deadline deadline)
      : description_(std::move(description)), deadline_(deadline) {}
  // This one is for classes that make their description when they are asked for it.
  explicit WorkState(Deadline deadline) : deadline_(deadline) {}
  virtual ~WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  // Makes an unfinished operation fail for this reason; does nothing to a finished one. On return
  // the operation is done. May be called from any thread.
  virtual void withdraw(CommErrorKind kind, const std::string& cause) = 0;

  // False when the operation is not done by then. A backend whose operations are carried out by
  // those who wait for them does so here.
  virtual bool wait_until(Deadline deadline);
  bool done() const;
  std::optional<CommError> error() const;
  size_t bytes() const;
  CommClock::time_point start() const;
  CommClock::time_point end() const;

  // Calls `then` once the operation is done, at once if it is done already. It runs in whatever
  // thread finishes the operation, which may hold locks of the backend: it must be quick and call
  // no transport.
  void on_done(std::function<void()> then);

  // "rank 0: recv from rank 2 (tag 7, 40 bytes)"
  virtual std::string description() const { return description_; }
  Deadline deadline() const { return deadline_; }

 protected:
  void began();
  // Exactly one of these, exactly once.
  void succeed(size_t bytes);
  void fail(const CommError& error);

 private:
  void finish(std::unique_lock<std::mutex> lock);

  const std::string description_;
  const Deadline deadline_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  // The parts of the error rather than an exception object: it is rethrown in several threads.
  bool failed_ = false;
  CommErrorKind kind_ = CommErrorKind::aborted;
  int peer_ = -1;
  std::string message_;
  size_t bytes_ = 0;
  CommClock::time_point start_ = CommClock::now();
  CommClock::time_point end_{};
  std::vector<std::function<void()>> then_;
};

}  // namespace detail

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
