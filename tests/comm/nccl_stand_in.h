// A stand-in for NCCL in one process, for tests of the adapter: ranks are threads, their GPU the
// simulated one, whose streams carry what NCCL would put on a GPU's.
//
// It keeps NCCL's contract, the inconvenient parts included:
//   * Communicators are blocking, and take one call at a time. Making one waits, within the call,
//     for all ranks; so does a communicator's first collective, and the first message between two.
//   * Sends and receives of one group go on together, groups one after the other: two ranks that
//     both send before they receive, in separate groups, wait for ever. So do unequal sizes and
//     unequal collectives.
//   * ncclCommAbort ends what is on the stream at once, and calls that wait; it returns when all
//     ranks have aborted.
//   * ncclCommFinalize waits, within the call, until all ranks finalize.
// What breaks the contract is written down as misuse, memory of the host too, and collectives of
// several communicators that ranks, each a thread, launch in two orders.
#pragma once

#include <string>
#include <vector>

#include "comm/nccl/nccl_library.h"

namespace rondo::test {

const Nccl& nccl_stand_in();

struct StandInFaults {
  // This rank's communicator reports `error` once it has put so many groups on its stream, and does
  // no more. With 0 it never joins the others, who wait for it until let_connections_end().
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
// Waits until no rank is making a communicator any more.
void let_connections_end();

}  // namespace rondo::test
