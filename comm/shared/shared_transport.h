// A Transport between processes (or threads) of one machine through memory that they share; between
// ranks that cannot, over another transport, which also makes the acquaintance and tells who is
// lost, who has finished and who has given up.
//
// How it works: every rank has an inbox (anonymous memory of its own, sealed so that nobody can
// shrink it) with a stream of bytes from each other rank; in worlds of more than 64 from its first
// peers (comm/first_peers.h), and the rest are reached over `inner`. Ranks tell each other
// over `inner`, which has authenticated them, where it is, and open it by way of /proc; that takes
// the same user, and leaves nothing behind whenever a process dies. Ranks in different containers
// or networks keep to `inner`. A message is copied into the stream and out of it, by the threads
// that wait for it.
//
// What ends (see transport.h and comm/tcp/tcp_transport.h):
//   * What `inner` says of a rank (lost, finished, aborted) ends the operations with it in the same
//     way, at once; what that rank had written before is delivered first.
//   * Withdrawing an operation needs the other rank's consent when its bytes may be moving already.
//     If that does not come within `grace`, because the other rank is stopped, the whole transport
//     is aborted.
#pragma once

#include <memory>
#include <vector>

#include "comm/first_peers.h"
#include "comm/transport.h"

namespace rondo {

struct SharedTransportOptions {
  // Whether this rank takes part; ranks that do not are reached over `inner`.
  bool share = true;
  // A rank that cannot be reached through memory is an InputError that names it and the cause.
  bool required = false;
  // By rank, the same on all ranks: Transport::machine_of. Empty: all ranks are on one machine.
  std::vector<int> machines = {};
  // The size of each stream, less with many ranks; a multiple of 4096. A rank's inbox has at most
  // 32 MiB, and those of a machine 4 GiB together, unless that left less than 64 KiB for a stream.
  size_t stream_bytes = size_t{1} << 20;
  // On this machine; 0: perhaps all.
  int local_ranks = 0;
  // As those of `inner`, if it has any.
  FirstPeers first_peers = rondo::first_peers;
  CommClock::duration timeout = std::chrono::seconds(60);
  CommClock::duration grace = std::chrono::milliseconds(250);
};

// All ranks of `inner` call this at the same time. Uses its tags of group 65535. CommError when a
// rank does not come in time.
std::unique_ptr<Transport> make_shared_transport(std::unique_ptr<Transport> inner,
                                                 const SharedTransportOptions& options = {});

// Whether `transport`, which the above made, reaches this rank through memory.
bool shares_memory_with(const Transport& transport, int rank);

}  // namespace rondo
