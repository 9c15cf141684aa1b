// Which ranks of a job are on one machine.
#pragma once

#include <vector>

#include "comm/store/store.h"

namespace rondo {

// By rank, the same on all ranks: a number for each machine, in the order of its lowest rank.
// Processes count as on one machine where they could share memory: the same kernel, and the same
// name spaces of processes and networks. All ranks call this at the same time, once in the life of
// the store; takes two values of the store for each rank. Throws CommError when a rank does not
// come.
std::vector<int> meet_machines(Store& store, int rank, int world_size, Deadline deadline);

}  // namespace rondo
