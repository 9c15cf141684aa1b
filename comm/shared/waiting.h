// Who moves the messages of a rank: a thread that waits for one of them (the leader), so that no
// message passes from thread to thread; the pump, a thread of its own, when nobody waits. Internal
// to the shared transport.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/shared/channel.h"

namespace rondo::shared_transport {

class Waiting {
 public:
  explicit Waiting(std::shared_ptr<const Inbox> own) : own_(std::move(own)), bell_(own_->bell()) {}

  void start(std::vector<std::shared_ptr<Channel>> channels);
  // Once all operations have ended. Lets go of the channels.
  void stop();

  // Until `op` is done. Like WorkState::wait_until, which `sleep` is.
  template <class Sleep>
  bool wait(const Operation& op, Deadline deadline, Sleep sleep) {
    if (op.done()) return true;
    if (leading_.exchange(true)) return sleep();
    lead(op, deadline);
    return op.done() || sleep();
  }

 private:
  void lead(const Operation& op, Deadline deadline);
  void pump();
  bool work_to_do() const;
  void progress();
  void set_leader(Leader l) { bell_.leader.store(static_cast<uint32_t>(l)); }

  const std::shared_ptr<const Inbox> own_;
  Bell& bell_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::atomic<bool> leading_{false}, stop_{false};
  std::thread pump_;
};

}  // namespace rondo::shared_transport
