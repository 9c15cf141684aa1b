// What the transports have in common that reach every other rank by a channel of its own. Internal
// to comm.
#pragma once

#include "comm/channels/operation.h"
#include "comm/transport.h"
#include "kernels/base/error.h"

namespace rondo::channels {

// World: what the channels of a rank share: `rank`, `size`, the channel to(peer), and
// abort(culprit, reason).
template <class World>
class ChannelTransport : public Transport {
 public:
  int rank() const final { return world_.rank; }
  int world_size() const final { return world_.size; }

  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) final {
    // Never written to: a send only reads.
    return channel(to).post(Direction::send, tag, const_cast<std::byte*>(data.data()), data.size(),
                            deadline);
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) final {
    return channel(from).post(Direction::recv, tag, data.data(), data.size(), deadline);
  }
  void abort(const std::string& reason) noexcept final { world_.abort(world_.rank, reason); }

 protected:
  ChannelTransport(int rank, int size) {
    RONDO_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of a world of ", size);
    world_.rank = rank;
    world_.size = size;
  }

  auto& channel(int peer) {
    RONDO_CHECK(peer >= 0 && peer < world_.size, "rank ", peer, " of a world of ", world_.size);
    RONDO_CHECK(peer != world_.rank, "rank ", peer, " exchanges a message with itself");
    return world_.to(peer);
  }

  World world_;
};

}  // namespace rondo::channels
