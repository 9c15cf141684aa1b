// Chunks of bytes that MPI carries from rank to rank; every call of MPI but its start and its end
// is made here. Internal to rondo_mpi.
//
// A rank has receives for chunks from anybody posted at all times. MPI matches the chunks of a
// sender in order, but may complete them out of order; so they are numbered.
//
// Thread safety: all members may be called from any thread; MPI is called by one at a time
// (MPI_THREAD_SERIALIZED).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rondo::mpi_transport {

constexpr size_t chunk_bytes = size_t{256} << 10;

struct ChunkHead {
  uint64_t world = 0, number = 0;  // among those from this sender to this receiver
  uint32_t from = 0, size = 0;
};

// Given back to the Exchange once read.
struct Chunk {
  int slot = -1;
  ChunkHead head;
  std::span<const std::byte> bytes;  // what is left to read
};

// "Open MPI v4.1.4": that which the program runs with.
std::string library_name();
// The process's MPI. Throws InputError if it cannot be started; afterwards does nothing.
void start_mpi();
// Waits for the other ranks.
void finalize_mpi();

class Exchange {
 public:
  // Collective where every rank has a process of its own (`processes` is 0, see MpiOptions).
  Exchange(int rank, int processes, uint64_t world);
  ~Exchange();
  // Waits for all ranks, and takes what is still on its way to this one.
  void drain();
  // Ranks are lost: the communicator is left as it is at the end.
  void forget();

  // How many ranks MPI counts, and which this is.
  int size() const;
  int own_number() const;

  // What has come, if anything, in no particular order. Throws Error for an error of MPI.
  std::vector<Chunk> poll();
  void give_back(const Chunk& chunk);

  // A chunk that leaves. Its memory is MPI's until it has left; what never does stays MPI's.
  class Outgoing {
   public:
    virtual ~Outgoing() = default;
    virtual std::span<std::byte> body() = 0;
  };
  using OutgoingPtr = std::shared_ptr<Outgoing>;
  OutgoingPtr make_outgoing();
  // The first head.size bytes of its body. Throws Error.
  void send(int to, const OutgoingPtr& chunk, const ChunkHead& head);
  static bool has_left(const OutgoingPtr& chunk);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::mpi_transport
