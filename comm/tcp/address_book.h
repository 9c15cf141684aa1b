// Where the ranks of a job listen, as they tell each other in the store. Internal to the TCP
// transport.
#pragma once

#include <string>
#include <vector>

#include "comm/socket.h"
#include "comm/tcp/tcp_transport.h"

namespace rondo::tcp_transport {

struct Place {
  std::vector<std::string> hosts;  // numeric; at least one, the best first
  uint16_t port = 0;
  // "10.0.0.1:4711", "10.0.0.1:4711 or [fd00::1]:4711"
  std::string name() const;
};

// Listens at a port that the system chooses, at the interface or addresses of the options, and says
// where in the store. InputError where that cannot be had.
Socket listen_and_tell(const TcpOptions& options, Deadline deadline);

// Where this rank listens; waits until it has said so.
Place place_of(const TcpOptions& options, int rank, Deadline deadline);

// Where all of them do, by rank; waits until all have said so. Rank 0 looks each of them up, and
// puts what it found under one key for the others. CommError names who is missing.
std::vector<Place> all_places(const TcpOptions& options, Deadline deadline);

}  // namespace rondo::tcp_transport
