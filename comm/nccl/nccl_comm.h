// A communicator of NCCL, blocking: a call is on its stream when it returns, and no thread has to
// be asked whether it is. (A non-blocking one hands each call to a thread that it makes for it.)
//
// After NCCL's contract: the first collective of a communicator, and the first message between two
// ranks, wait within the call until the other ranks have come to theirs; later calls wait for
// nobody. What is waited for in NCCL ends with abort(), which may come at any time, from any thread
// (since NCCL 2.19). Aborting is for all ranks (of a node, at least) together; one that aborts
// alone may wait in NCCL for the others. Making and closing a communicator wait for the others as
// well: they do so in a thread of their own, so that the caller is free at its deadline.
//
// Thread safety: members may be called from any thread, group() by one at a time.
#pragma once

#include <functional>
#include <mutex>

#include "comm/nccl/nccl_library.h"
#include "comm/work.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/device.h"

namespace rondo {

class NcclComm {
 public:
  // Called now and then while something is awaited; may throw CommError.
  using Look = std::function<void()>;

  // Connects the ranks, each of which passes the same id. Throws CommError, and what `look` throws;
  // a thread may then stay behind in NCCL, until the others come or the process ends.
  // `most_blocks` of its kernels run at a time; 0: as many as NCCL likes.
  NcclComm(const Nccl& nccl, Device& device, int rank, int size, const ncclUniqueId& id,
           int most_blocks, Deadline deadline, const Look& look);
  // Aborts, unless close() or abort() was called.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // What `calls` asks for is one group, on its stream when this returns. Throws CommError.
  void group(const std::function<void(const Nccl&, ncclComm_t)>& calls);
  // Throws what went wrong on the network or on other ranks.
  void check();
  // Ends what is on its streams, and the calls that wait in NCCL; the communicator is gone. May
  // wait for other ranks in NCCL.
  void abort() noexcept;
  // Finalizes and destroys, when all ranks do; aborts when they do not within the deadline, or
  // `look` throws.
  void close(Deadline deadline, const Look& look) noexcept;

 private:
  class Call;

  const Nccl& nccl_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // what follows; held while comm_ is asked for its state
  ConditionVariable left_;
  int calls_ = 0;  // that are in NCCL
  bool aborted_ = false;
};

// Throws unless a function of NCCL has succeeded.
void check_nccl(const Nccl& nccl, ncclResult_t result, const char* what);

}  // namespace rondo
