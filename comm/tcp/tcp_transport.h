// A Transport over TCP: one process (or thread) per rank, a connection between every two in worlds
// of up to 64; in larger ones between those that rings and trees need (comm/first_peers.h),
// and between others once they exchange a message.
//
// How it works: ranks find each other through a Store and prove the job token to each other
// (HMAC-SHA-256 over random challenges of both) before anything else is read; once all are
// connected, none listens any more. Messages travel in frames, matched and compared before their
// bytes move (comm/channels/channel.h). Whoever posts a message writes it to the socket if there is
// room; a thread of the transport does everything else, and waits with epoll.
//
// What ends:
//   * A rank that dies is noticed at once by every rank that is connected with it, by its closed
//     connection: pending and later operations with it fail with peer_lost. Those among others go
//     on. A rank that is not connected with it notices when it wants to be: nobody listens there.
//     Whoever gives up on it tells all (abort), and word passes from rank to rank.
//   * A machine that falls silent is noticed within `silence` and a few seconds, also by ranks that
//     wait for nothing in particular: its ranks are lost. One that is stopped is only late.
//   * A rank that leaves in order (its transport is destroyed) counts as lost: "it has finished".
//   * Withdrawing an operation (its deadline passed, its Work was dropped) needs the other rank's
//     consent when its bytes may be moving already. If that does not come within `grace`, because
//     the other rank is stopped or cut off, the transport aborts itself: from then on everything
//     fails with `aborted`. Build a new one, with another rendezvous id.
//
// Bytes on the wire are not encrypted: the token keeps other users and other jobs out, not somebody
// who can alter the traffic.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/first_peers.h"
#include "comm/store/store.h"
#include "comm/transport.h"

namespace rondo {

struct TcpOptions {
  int rank = 0;
  int world_size = 1;
  // Used during construction alone.
  Store* store = nullptr;
  // Part of the keys in the store and of the proofs. Ranks with equal ids form a world; each
  // attempt needs a new one.
  std::string rendezvous_id = "ranks";
  std::string token;
  // Where to listen: an interface ("eth0"), else an address or host name of this machine, which is
  // what the other ranks connect to.
  std::string interface;
  std::string bind_address = "127.0.0.1";
  // Numeric addresses at which other ranks reach this one too, should they not reach the first: of
  // another family, say. With any, it listens at every address of the machine.
  std::vector<std::string> other_addresses;
  // The time for all ranks to come together.
  CommClock::duration timeout = std::chrono::seconds(60);
  CommClock::duration grace = std::chrono::milliseconds(250);
  std::chrono::seconds silence{30};
  // Hears of dropped connections, a line each, from the constructing thread; where ranks are
  // connected later, also from the transport's own. Empty: standard error.
  std::function<void(const std::string&)> log;
  // All ranks alike.
  FirstPeers first_peers = rondo::first_peers;
};

// Returns once this rank is connected with its first peers.
// Errors: InputError (no such interface or address, wrong token), CommError (a rank did not come in
// time, or died on the way).
std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options);

}  // namespace rondo
