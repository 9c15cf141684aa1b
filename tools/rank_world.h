// The connection of this process with the other ranks of its job.
#pragma once

#include <memory>

#include "comm/process_group.h"
#include "comm/store.h"
#include "engine/parallel/launch_environment.h"

namespace rondo {

class RankWorld {
 public:
  virtual ~RankWorld() = default;
  virtual Transport& transport() = 0;
  // Where the ranks met.
  virtual Store& store() = 0;
};

// Meets the other ranks, at most so long, and connects with them over TCP. InputError when this
// program was built without Gloo, or the place cannot be used; CommError when a rank does not come.
std::unique_ptr<RankWorld> join_ranks(const RankPlace& place, CommClock::duration timeout);

}  // namespace rondo
