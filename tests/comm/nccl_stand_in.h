// A stand-in for NCCL in one process, for tests of the adapter: ranks are threads, their GPU the
// simulated one, whose streams carry what NCCL would put on a GPU's.
//
// It keeps NCCL's contract, the inconvenient parts included:
//   * Communicators are non-blocking. A call is in progress for some polls; only then is it on the
//     stream. Until then the communicator takes no other call.
//   * Sends and receives of one group go on together, groups one after the other: two ranks that
//     both send before they receive, in separate groups, wait for ever. So do unequal sizes and
//     unequal collectives.
//   * ncclCommAbort ends what is on the stream at once, and returns when all ranks have aborted.
//   * ncclCommFinalize is done when all ranks finalize.
// What breaks the contract is written down as misuse, memory of the host too, and collectives of
// several communicators that ranks, each a thread, launch in two orders.
#pragma once

#include <string>
#include <vector>

#include "comm/nccl/nccl_library.h"

namespace rondo::test {

const Nccl& nccl_stand_in();

struct StandInFaults {
  int polls = 2;  // while a call is in progress
  // This rank's communicator reports `error` once it has put so many groups on its stream (with 0:
  // while it connects), and does no more.
  int failing_rank = -1;
  int groups_before = 0;
  ncclResult_t error = ncclSuccess;
  bool abort_hangs = false;  // until let_aborts_end()
};

struct StandInRecord {
  std::vector<std::string> misuses;
  int communicators = 0;  // made
  int destroyed = 0, aborted = 0;
  int lonely_aborts = 0;  // that waited for other ranks in vain
  int messages = 0;       // sends and receives
};

// Forgets what was recorded. No communicator may be alive.
void reset_stand_in(const StandInFaults& faults = {});
StandInRecord stand_in_record();
void let_aborts_end();

}  // namespace rondo::test
