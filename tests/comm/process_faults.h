// Ranks as processes that are killed, stopped, misled: what has to come of it over any transport.
#pragma once

#include "tests/comm/socket_ranks.h"

namespace rondo {

// Runs as the body of a TEST_CASE; contains SECTIONs. Forks: the calling process must have no other
// threads.
void check_process_faults(const Stack& stack);

}  // namespace rondo
