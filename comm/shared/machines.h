// Which ranks of a job are on one machine.
#pragma once

#include <vector>

#include "comm/transport.h"

namespace rondo {

// By rank, the same on all ranks: a number for each machine, in the order of its lowest rank.
// Processes count as on one machine where they could share memory: the same kernel, and the same
// name spaces of processes and networks. All ranks of the transport call this at the same time.
// Throws CommError when a rank is lost or late.
std::vector<int> meet_machines(Transport& transport, CommClock::duration timeout);

}  // namespace rondo
