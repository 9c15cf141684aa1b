// A Transport whose messages travel by MPI, between ranks that mpirun or srun has started: over
// whatever the MPI library knows, InfiniBand without TCP among it. In a library of its own
// (rondo_mpi), so that only programs that use it link MPI.
//
// How it works: `inner`, which has authenticated the ranks, goes on telling who is lost, has
// finished or has given up (MPI itself tells nothing of that, or ends the process). Messages are
// matched, compared and cut into frames like those of the other transports (comm/channels), and the
// stream of frames between two ranks is cut into chunks of at most 256 KiB, which MPI sends. MPI
// has nothing that one could sleep on: whoever waits for a message asks it again and again, giving
// the processor away in between. When nobody waits, a thread asks a thousand times a second.
//
// What ends (see transport.h and comm/tcp/tcp_transport.h):
//   * What `inner` says of a rank ends the operations with it in the same way. What that rank had
//     sent before is delivered first; so a rank that is lost is reported up to `linger` later.
//   * Withdrawing an operation needs the other rank's consent when its bytes may be moving already.
//     If that does not come within `grace`, because the other rank is stopped, the whole transport
//     is aborted.
//   * Errors of MPI do not end the process (MPI_ERRORS_RETURN): they are lost ranks.
//
// mpirun ends all processes of a job when one is killed, or ends before MPI_Finalize. A process
// that failed does not call that, for it waits for the others.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace rondo {

struct MpiOptions {
  CommClock::duration grace = std::chrono::milliseconds(250);
  CommClock::duration linger = std::chrono::milliseconds(200);
  // Whether MPI_Finalize comes with the end of this transport, unless something failed before. A
  // process can start MPI once only.
  bool finalizes = true;
  // For tests: rank r is in process r % `processes`; 0: every rank has a process of its own.
  // `world` tells worlds one after the other apart.
  int processes = 0;
  uint64_t world = 0;
};

// Whether this process was started by something that an MPI library hears of its rank from.
bool is_started_for_mpi();

// "Open MPI v4.1.4, ...": that which the program runs with.
std::string mpi_library_name();

// All ranks of `inner` call this at the same time; starts MPI. Uses tags of group 65534 of `inner`.
// InputError when MPI cannot be started, or counts ranks otherwise than `inner`.
std::unique_ptr<Transport> make_mpi_transport(std::unique_ptr<Transport> inner,
                                              const MpiOptions& options = {});

}  // namespace rondo
