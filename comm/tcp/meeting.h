// How the ranks of a job get a TCP connection between every two. Internal to the TCP transport.
//
// Every rank listens at a port that the system chooses, tells it in the store, connects to all
// lower ranks and admits all higher ones; then it listens no more. Strangers at the port see 40
// bytes that tell them nothing. Whoever cannot prove the job token in time, or says anything else,
// is dropped, with a line to the log. They cannot make a rank wait: one loop polls all of them,
// takes from each no more than the answer that it owes, and lets the oldest go when there are too
// many.
#pragma once

#include <vector>

#include "comm/base/socket.h"
#include "comm/tcp/tcp_transport.h"

namespace rondo::tcp_transport {

constexpr size_t most_strangers = 64;
constexpr auto handshake_timeout = std::chrono::seconds(5);

// By rank; empty for this one. Errors: as make_tcp_transport.
std::vector<Socket> meet(const TcpOptions& options, Deadline deadline);

}  // namespace rondo::tcp_transport
