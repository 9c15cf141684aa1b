// Who asks MPI for what has come: a thread that waits for a message, so that no message passes from
// thread to thread; a thread of its own when nobody waits. Internal to rondo_mpi.
//
// Thread safety: wait() may be called from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "comm/channels/operation.h"
#include "kernels/base/cpu/thread.h"

namespace rondo::mpi_transport {

class Poller {
 public:
  // `progress`: does what there is to do; false: there was nothing. Called by several threads.
  explicit Poller(std::function<bool()> progress) : progress_(std::move(progress)) {}
  ~Poller() { stop(); }
  // From now on `progress` is called.
  void start();
  // No operation is waited for any more.
  void stop();

  // Until `op` is done; false: not by then.
  bool wait(channels::Operation& op, Deadline deadline);

 private:
  void pump();

  const std::function<bool()> progress_;
  std::atomic<bool> leading_{false}, stop_{false};
  Thread pump_;
};

}  // namespace rondo::mpi_transport
