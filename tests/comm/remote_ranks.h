// Ranks in several processes that one of them uses as if they were all its own: so a test that was
// written for one process sees messages between processes. Rank r lives in process r % processes.
//
// Process 0 drives: what it does with a rank of another process is told to that process, which
// does it and tells what became of it. The others serve().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/comm/transport_contract.h"

namespace rondo {

// In the process of the rank; all ranks of a world at the same time.
using MakeRank = std::function<std::unique_ptr<Transport>(int rank, int ranks, uint64_t world)>;

class RemoteRanks {
 public:
  // They meet in this directory.
  RemoteRanks(int process, int processes, const std::string& directory, MakeRank make);
  // The others return from serve().
  ~RemoteRanks();

  // Process 0.
  std::unique_ptr<TestWorld> make_world(int ranks);
  // The others, until process 0 ends.
  void serve();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace rondo
