// A Transport over Gloo's TCP device, beside our own (comm/tcp/tcp_transport.h, which says how an
// operation ends: here too): one process (or thread) per rank, a connection between every two. In a
// library of its own (rondo_gloo), so that only programs that use it link Gloo.
//
// How it maps onto Gloo: the receiver of a message announces (tag, size) to the sender as soon as
// recv is called; the sender matches announcements with its sends, so the sizes are compared before
// any byte moves (Gloo itself ends the process when they differ), and the data go straight from the
// sender's memory into the receiver's. Messages of up to 2 KiB travel with the header. All waiting
// is done by threads of the transport, two per peer: Gloo ends the whole context when one of its
// own waits times out, ours does not.
//
// Bytes on the wire are not encrypted. Every connection proves the job token (HMAC-SHA-256 over a
// nonce from the store) before anything else is accepted. But until all ranks are connected Gloo
// listens, takes the first connection at a port for the rank that it waits for, and reads the frame
// around that proof itself: a stranger who connects in between ends the rendezvous. Bind it to a
// network that strangers cannot reach, or take make_tcp_transport.
#pragma once

#include <memory>
#include <string>

#include "comm/group/process_group.h"
#include "comm/tcp/tcp_transport.h"

namespace rondo {

// `log` is not used.
using GlooOptions = TcpOptions;

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
