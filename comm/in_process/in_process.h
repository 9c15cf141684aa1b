// Ranks as threads of one process. Messages are copied once, straight from the sender's memory into
// the receiver's; a send is done when its recv has taken it (the strictest behaviour the Transport
// contract allows, so what runs here does not rely on buffering elsewhere).
//
// Used by tests, by one process driving several devices, and as the model of a backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace rondo {

class InProcessWorld {
 public:
  explicit InProcessWorld(int world_size);
  // Aborts what is still pending.
  ~InProcessWorld();
  InProcessWorld(const InProcessWorld&) = delete;
  InProcessWorld& operator=(const InProcessWorld&) = delete;

  int world_size() const;

  // Lives as long as the world.
  Transport& transport(int rank);

  // From now on `rank` is dead: operations with it, pending or later, fail with peer_lost.
  void lose(int rank, const std::string& reason);

 private:
  struct Shared;
  class Endpoint;
  class Operation;
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace rondo
