// The messages between shards of sequences: states of layers and of CTC, and their gradients, from
// the memory of one shard's bound graph into that of another's. For engine/steps/sequence_shards.h.
//
// A state is rows, one per sequence, in one plane or several. They travel in the order of the whole
// batch, for each shard sorts its sequences in its own way.
//
// On a cpu rows are copied at once. On other devices they go by way of page-locked host memory, in
// the order of the context's stream: what leaves is copied to the host behind the kernels that
// make it, while the host enqueues what comes next, and is sent when it is there; what arrives is
// copied to the device in front of the kernels that read it. The host waits for the device only
// before it waits for a neighbour that may need what has not left yet.
//
// One thread at a time. Throws CommError when a rank fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "engine/steps/staging_pool.h"
#include "kernels/base/op.h"

namespace rondo {

class ShardBorders {
 public:
  // Planes of rows [order.size()] of `row` bytes each, in the device's memory, `plane` bytes apart;
  // row i of each belongs to sequence order[i] of the whole batch.
  struct Rows {
    std::byte* data = nullptr;
    size_t row = 0;
    size_t planes = 1;
    size_t plane = 0;

    size_t bytes(size_t sequences) const { return planes * sequences * row; }
  };
  using Order = std::vector<int32_t>;

  // Ranks of messages count from `first` of the group. Borrows the group and what the context
  // points to.
  ShardBorders(const Context& context, ProcessGroup& group, int first);

  // Messages until finish() may take until then.
  void start(Deadline deadline);
  // Everything has left, and has been received elsewhere.
  void finish();

  // The i-th of them as message `number` + i. Nothing is waited for; `order` lives until
  // post_leaving(). The device's memory may be written by what is enqueued later.
  void send(int to, uint32_t number, std::span<const Rows> states, const Order& order);
  // Posts the receives of `sequences` rows of these sizes, ahead of receive().
  void expect(int from, uint32_t number, std::span<const size_t> rows, size_t sequences);
  // What `from` sent under these numbers; it is there before what is enqueued afterwards.
  void receive(int from, uint32_t number, std::span<const Rows> states, const Order& order);

  // Host memory, as it is.
  void post(int to, uint32_t number, std::vector<std::byte> bytes);
  void receive(int from, uint32_t number, std::span<std::byte> bytes);

  // Sends what has come to the host; `all`: waits for what has not. To be called before the host
  // waits for anything that a neighbour does.
  enum class Leaving : uint8_t { arrived, all };
  void post_leaving(Leaving which);

  // The device's memory where the host can read it: itself on a cpu, otherwise a copy that lasts
  // until the next one. Waits for the device.
  const std::byte* fetched(const std::byte* data, size_t bytes);
  // Into the device's memory; the bytes are copied out before this returns.
  void upload(std::byte* data, std::span<const std::byte> bytes);

 private:
  struct Message {
    std::vector<std::byte> bytes;
    Work work;  // after its bytes: it ends before them
  };
  // On its way to the host.
  struct Departure {
    StagingPool::Piece* staged;
    int to;
    uint32_t number;
    std::vector<Rows> states;
    const Order* order;
  };
  bool direct() const { return context_.device->kind() == DeviceKind::cpu; }
  void post_receive(int from, uint32_t number, size_t bytes);

  const Context context_;
  ProcessGroup& group_;
  const int first_;
  Deadline deadline_{};
  std::vector<Message> sent_;
  std::map<uint32_t, Message> incoming_;  // posted, by number
  StagingPool staging_;
  std::deque<Departure> leaving_;
  StagingPool::Piece* fetched_ = nullptr;
};

}  // namespace rondo
