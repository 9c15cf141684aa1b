// A Transport over Gloo's TCP device: one process (or thread) per rank, a connection between every
// two. In a library of its own (rondo_gloo), so that only programs that use it link Gloo.
//
// How it maps onto Gloo: the receiver of a message announces (tag, size) to the sender as soon as
// recv is called; the sender matches announcements with its sends, so the sizes are compared before
// any byte moves (Gloo itself ends the process when they differ), and the data go straight from the
// sender's memory into the receiver's. Messages of up to 2 KiB travel with the header. All waiting
// is done by threads of the transport, two per peer: Gloo ends the whole context when one of its
// own waits times out, ours does not.
//
// What ends:
//   * A rank that dies is noticed by every other rank at once, by its closed connections: pending
//     and later operations with it fail with peer_lost. Those among others go on.
//   * A rank that leaves in order (its transport is destroyed) counts as lost: "it has finished".
//   * Withdrawing an operation (its deadline passed, its Work was dropped) needs the other rank's
//     consent when its bytes may be moving already. If that does not come within `grace`, because
//     the other rank is stopped or cut off, the transport aborts itself: from then on everything
//     fails with `aborted`. Build a new one, with another rendezvous id.
//
// Bytes on the wire are not encrypted. Every connection proves the job token (HMAC-SHA-256 over a
// nonce from the store) before anything else is accepted; Gloo reads the frame around that proof,
// so bind it to a network that strangers cannot reach.
#pragma once

#include <memory>
#include <string>

#include "comm/process_group.h"
#include "comm/store.h"

namespace rondo {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  // Used during construction alone.
  Store* store = nullptr;
  // Part of the keys in the store. Ranks with equal ids form a world; each attempt needs a new one.
  std::string rendezvous_id = "gloo";
  std::string token;
  // Where to listen: an interface ("eth0"), else an address or host name of this machine.
  std::string interface;
  std::string bind_address = "127.0.0.1";
  // For all ranks to come together.
  CommClock::duration timeout = std::chrono::seconds(60);
  CommClock::duration grace = std::chrono::milliseconds(250);
};

// Returns once this rank is connected with all others.
// Errors: InputError (no such interface or address, wrong token), CommError (a rank did not come in
// time, or died on the way).
std::unique_ptr<Transport> make_gloo_transport(const GlooOptions& options);

// Gloo's own all-reduce in place of ours, over the same connections: put it into
// GroupOptions::all_reduce of a group of all ranks. `transport` must be what make_gloo_transport
// returned, undecorated, and outlive the function. f32 and f64. A wait of Gloo's that times out
// ends the whole transport; an operation that is withdrawn ends at its deadline, not before.
enum class GlooAlgorithm : uint8_t { ring, bcube };
AllReduce gloo_all_reduce(Transport& transport, GlooAlgorithm algorithm);

}  // namespace rondo
