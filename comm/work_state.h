// What a backend implements of an operation (comm/work.h): its state, shared by the Work and by
// whoever carries the operation out.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/work.h"
#include "kernels/base/cpu/thread.h"

namespace rondo::detail {

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
  ConditionVariable finished_;
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

}  // namespace rondo::detail
