// The project's ring (collectives.h) over NCCL's grouped send and recv: the same chunks, the same
// order of sums and so the same bits as over any other transport, everything enqueued.
//
// A message is one NCCL group: what leaves and what arrives. Sums run on a stream of their own
// beside the next transfer, as far as the chunks are longer than a message.
#pragma once

#include <array>

#include "comm/group/collectives.h"
#include "comm/group/device_group.h"
#include "comm/nccl/nccl_comm.h"

namespace rondo {

class NcclRing {
 public:
  // `stream` is where transfers go; data are ready when it comes to them and finished when it has
  // passed. All are borrowed.
  NcclRing(NcclComm& comm, Device& device, Stream& stream, const DeviceArithmetic& arithmetic,
           int rank, int size, size_t message_bytes);

  // Enqueue; return the bytes this rank sends. Sums are of f32 or bf16; Wire::bf16 is for f32.
  size_t all_reduce(const TensorView& data, Wire wire);
  size_t reduce_scatter(const TensorView& data, Wire wire);
  size_t all_gather(const TensorView& data);

 private:
  enum class Landing : uint8_t { add, replace, in_place };
  struct Pass {  // one half of the ring
    TensorView data;
    DType wire;
    int first_chunk;  // that this rank sends; then the one before, ...
    Landing landing;
  };
  size_t run(const Pass& pass);
  void round_own(const Pass& pass);
  void exchange(const TensorView& out, const TensorView& in);
  ChunkRange piece_of(const Pass& pass, int chunk, int64_t piece) const;
  int64_t piece_elements(const Pass& pass) const;
  TensorView slot(const Pass& pass, int64_t index, int64_t elements) const;

  NcclComm& comm_;
  Device& device_;
  Stream& stream_;
  const DeviceArithmetic& arithmetic_;
  const int rank_, size_;
  const size_t message_bytes_;
  Stream sums_;
  Buffer staging_;  // two messages that arrive, two that were converted to leave
  std::array<Event, 2> arrived_, landed_;
};

}  // namespace rondo
