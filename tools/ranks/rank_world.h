// The connection of this process with the other ranks of its job.
#pragma once

#include <memory>

#include "comm/group/process_group.h"
#include "comm/store/store.h"
#include "comm/tcp/tcp_transport.h"
#include "engine/config/config.h"
#include "engine/parallel/launch_environment.h"

namespace rondo {

class RankWorld {
 public:
  virtual ~RankWorld() = default;
  virtual Transport& transport() = 0;
  // Where the ranks met.
  virtual Store& store() = 0;
};

// Meets the other ranks, at most so long, and connects with them over TCP, and with those of its
// machine through memory as `transport` says. InputError when the place or the transport cannot be
// used; CommError when a rank does not come.
std::unique_ptr<RankWorld> join_ranks(const RankPlace& place, RankTransport transport,
                                      CommClock::duration timeout);

// Of ranks that have met: as `options` say over TCP, and with those of its machine through memory
// as `transport` says, all within options.timeout. `machines`: Transport::machine_of, by rank;
// empty: all are on one. Errors as join_ranks().
std::unique_ptr<Transport> connect_ranks(const TcpOptions& options, RankTransport transport,
                                         bool several_machines = false);

// Throws the exception that is being handled, as what this process is to tell: with the rank before
// it, unless all ranks failed alike. The other ranks hear of it. What all know, one process of each
// machine tells: the others throw PeerFailed, which is not told.
[[noreturn]] void rethrow_as_rank(const RankPlace& place, Transport& transport);

}  // namespace rondo
