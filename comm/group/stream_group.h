// StreamGroup: what groups of devices have in common: the stream, the Works, and a thread that
// watches over them.
//
// The thread asks for each operation's event, completes its Work, notices deadlines, and looks
// after the other ranks from time to time. It alone ends the group: whatever is found wrong, by
// whichever thread, is handed to it. Then what is on the stream is broken off, so that the stream
// passes, and the Works fail: memory is free when its Work is done. (If the stream is still stuck
// five seconds later, they fail all the same.)
#pragma once

#include <deque>
#include <mutex>

#include "comm/group/device_group.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {

class StreamGroup : public DeviceGroup {
 public:
  StreamGroup(const StreamGroup&) = delete;
  StreamGroup& operator=(const StreamGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Device& device() override { return device_; }
  Stream& stream() override { return stream_; }
  void abort(const std::string& reason) noexcept override;

 protected:
  StreamGroup(Device& device, int rank, int size, CommClock::duration timeout);
  // Derived classes call stop() in their destructors.
  ~StreamGroup() override;

  void start();
  // Breaks off what is pending, and ends the thread. True when nothing had gone wrong.
  bool stop();

  // What was put on the stream for one operation.
  struct Outcome {
    size_t bytes = 0;  // that this rank sent
    std::optional<CommError> error = {};
  };
  struct Enqueued {
    std::function<Outcome()> outcome;   // asked when the stream has passed
    std::function<void()> cancel = {};  // the operation is to end soon
  };
  enum class Kind : uint8_t { collective, message };
  // `enqueue` may wait for other ranks until the group ends, which the operation's deadline sees
  // to, and may throw CommError, which ends the group.
  Work issue(const std::string& what, Kind kind, Deadline deadline,
             const std::function<Enqueued()>& enqueue);

  // Where an operation stands among this rank's.
  struct Place {
    uint32_t issued = 0, completed = 0;  // collectives so far
    bool waiting = false;                // the two below are of the oldest that is pending
    uint32_t number = 0;                 // as of a collective: how many were issued before it
    std::string what;
  };
  Place place();

  // The rest runs in the thread.
  // Lets the stream pass. Must not block. `tell`: the other ranks do not know yet.
  virtual void break_off(const CommError& why, bool tell) noexcept = 0;
  // Every `look_interval`; a CommError ends the group (other ranks know it if it is `aborted`).
  virtual void look_at_peers() {}
  // More about a deadline that passed.
  virtual CommError explain(const CommError& timeout) { return timeout; }
  // From any thread: the others shall stop for this reason.
  virtual void tell_others(const std::string& reason) noexcept = 0;

  Deadline limit(Limit deadline) const { return deadline.value_or(within(timeout_)); }
  CommClock::duration look_interval = std::chrono::milliseconds(50);
  void check_peer(int peer) const;

 private:
  class Operation;
  struct Ending {
    CommError error;
    const Operation* culprit;  // or the oldest
    bool tell;
  };

  void request_end(const CommError& error, const Operation* culprit, bool tell);
  void withdraw(Operation& operation, CommErrorKind kind, const std::string& cause);
  void work();
  bool advance();
  void complete(const std::shared_ptr<Operation>& operation);
  void await_passed(Operation& operation, Deadline patience);
  void end_now();
  Event take_event();

  Device& device_;
  const int rank_, size_;
  const CommClock::duration timeout_;
  Stream stream_;

  std::mutex issuing_;  // one operation at a time; held while it is enqueued
  std::mutex mutex_;    // what follows
  ConditionVariable changed_, enqueued_;
  std::deque<std::shared_ptr<Operation>> pending_;
  std::vector<Event> spare_events_;
  std::optional<Ending> ending_;
  bool ended_ = false;  // ending_ has been carried out
  bool stop_ = false;
  uint32_t issued_ = 0, completed_ = 0;  // collectives
  Thread thread_;
};

}  // namespace rondo
