// A communicator of NCCL, non-blocking: no call waits for another rank for longer than its
// deadline, and abort() may come at any time, from any thread.
//
// After NCCL's contract: while a call is in progress (ncclInProgress) the communicator takes no
// other, nor does its stream; so each is polled until it has been carried out. Aborting is for all
// ranks (of a node, at least) together; one that aborts alone may wait in NCCL for the others.
//
// Thread safety: members may be called from any thread, group() by one at a time.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "comm/base/work.h"
#include "comm/nccl/nccl_library.h"
#include "kernels/base/device.h"

namespace rondo {

class NcclComm {
 public:
  // Called now and then while something is awaited; may throw CommError.
  using Look = std::function<void()>;

  // Begins to connect the ranks, each of which passes the same id; connect() waits for the others.
  // Both throw CommError. `most_blocks` of its kernels run at a time; 0: as many as NCCL likes.
  NcclComm(const Nccl& nccl, Device& device, int rank, int size, const ncclUniqueId& id,
           int most_blocks = 0);
  void connect(Deadline deadline, const Look& look);
  // Aborts, unless close() or abort() was called.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // What `calls` asks for is one group, on its stream when this returns. Throws CommError.
  void group(const std::function<void(const Nccl&, ncclComm_t)>& calls, Deadline deadline);
  // Throws what went wrong on the network or on other ranks.
  void check();
  // Ends what is on its streams; the communicator is gone. May wait for other ranks in NCCL.
  void abort() noexcept;
  // Finalizes and destroys, when all ranks do; aborts when they do not within the deadline, or
  // `look` throws.
  void close(Deadline deadline, const Look& look) noexcept;

 private:
  CommError error(const char* what, ncclResult_t result) const;
  ncclResult_t state();
  void settle(const char* what, Deadline deadline, const Look& look);

  const Nccl& nccl_;
  std::mutex mutex_;  // one call at a time
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> aborted_ = false;
};

// Throws when a function of NCCL refuses its arguments, within group().
void check_nccl(const Nccl& nccl, ncclResult_t result, const char* what);

}  // namespace rondo
