// Who moves the messages of a rank: a thread that waits for one of them (the leader), so that no
// message passes from thread to thread; the pump, a thread of its own, when nobody waits. Internal
// to the shared transport.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/channels/channel.h"
#include "comm/shared/inbox.h"
#include "kernels/base/cpu/thread.h"

namespace rondo::shared_transport {

class Waiting {
 public:
  explicit Waiting(std::shared_ptr<const Inbox> own) : own_(std::move(own)), bell_(own_->bell()) {}

  void start(std::vector<std::shared_ptr<channels::Channel>> channels);
  // Once all operations have ended. Lets go of the channels.
  void stop();

  // Until `op` is done; false: not by then.
  bool wait(channels::Operation& op, Deadline deadline) {
    if (op.done()) return true;
    if (leading_.exchange(true)) return op.sleep_until(deadline);
    lead(op, deadline);
    return op.done() || op.sleep_until(deadline);
  }

 private:
  void lead(const channels::Operation& op, Deadline deadline);
  void pump();
  bool work_to_do() const;
  void progress();
  void set_leader(Leader l) { bell_.leader.store(static_cast<uint32_t>(l)); }

  const std::shared_ptr<const Inbox> own_;
  Bell& bell_;
  std::vector<std::shared_ptr<channels::Channel>> channels_;
  std::atomic<bool> leading_{false}, stop_{false};
  Thread pump_;
};

}  // namespace rondo::shared_transport
