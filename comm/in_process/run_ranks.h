// Runs one function as n ranks, each in a thread of its own, over an in-process world.
#pragma once

#include <exception>
#include <functional>
#include <vector>

#include "comm/transport.h"

namespace rondo {

using RankFunction = std::function<void(int rank, Transport& transport)>;

struct RankOutcome {
  std::vector<std::exception_ptr> errors;  // by rank; null where the rank succeeded
  int first_failed = -1;                   // the rank that failed first, or -1
};

// Waits for all ranks. When one throws, the world is aborted with its message, so that ranks which
// wait end with a CommError that names it; a rank that returns while another still waits for it
// counts as lost (peer_lost). A rank whose thread cannot be started has failed by that (NoThread).
RankOutcome run_ranks_and_collect(int n, const RankFunction& function);

// The same; rethrows the exception of the rank that failed first.
void run_ranks(int n, const RankFunction& function);

}  // namespace rondo
