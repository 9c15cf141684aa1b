// A group of GPUs connected by NCCL (2.19 or later), one GPU per rank.
//
// Collectives are NCCL's own, or the project's ring over NCCL's send and recv (the same bits as one
// ring over any other transport). all_reduce and reduce_scatter take f32 and bf16, NCCL's own f64
// as well. send and recv match in the order of the calls, whatever their tags; what two ranks send
// each other has to be one exchange(), or both wait.
//
// Failure, beyond what ProcessGroup says:
//   * Ranks agree over the Store to stop: whoever finds a fault writes the reason there, every
//     rank's thread looks there 20 times a second, and all abort NCCL together, as it wants.
//   * A deadline: each rank tells where it stands, so that the message can say who is elsewhere;
//     ranks in different collectives are a mismatch. NCCL itself checks nothing.
//   * An abort that NCCL does not carry out is told to whoever asked for it (`hung`).
//   * NCCL tells of lost connections between machines. On one machine a killed rank is a time-out.
//   * A rank that destroys its group has left: others' collectives that it took no part in fail
//     with peer_lost at once.
// The first collective of a group, and the first message between two ranks, connect them, and wait
// for the others within the call, no longer than the operation's deadline. Later calls return when
// they are on the stream, which takes NCCL as long as launching a kernel.
//
// Several groups on one GPU: a GPU need not run the kernels of two of them side by side, so ranks
// that share groups make them in one order, and call collectives on them in one order. Messages
// have no such order (two stages of a pipeline send each other what the other does not wait for
// yet): they go on side by side, for which their blocks must fit beside whatever else runs.
#pragma once

#include <functional>
#include <memory>

#include "comm/group/device_group.h"
#include "comm/nccl/nccl_library.h"
#include "comm/store/store.h"

namespace rondo {

// nccl: NCCL's own algorithms, which it chooses by size and topology; NCCL does not promise that
// their sums repeat themselves bit for bit. ring: ours, in a fixed order (collectives.h).
enum class NcclAlgorithm : uint8_t { nccl, ring };

struct NcclOptions {
  const Nccl* nccl = nullptr;  // find_nccl()
  Device* device = nullptr;    // no two ranks the same
  DeviceArithmetic arithmetic = {};
  int rank = 0;
  int world_size = 1;
  Store* store = nullptr;     // of all ranks
  std::string name = "nccl";  // of the group in the store; never used before
  CommClock::duration timeout = std::chrono::minutes(5);  // of an operation, and of connecting
  size_t message_bytes = size_t{4} << 20;                 // largest of our ring
  Wire wire = Wire::exact;
  NcclAlgorithm algorithm = NcclAlgorithm::nccl;
  int most_blocks = 0;  // of NCCL's kernels at a time (ncclConfig_t::maxCTAs); 0: its own choice
  // Called, from a thread of the group, when NCCL has not aborted within `abort_timeout`, with what
  // the group failed with: then whatever waits for the device waits for ever, destructors too, and
  // only the end of the process helps. Empty: that is waited for.
  std::function<void(const std::string& why)> hung = {};
  CommClock::duration abort_timeout = std::chrono::seconds(30);
};

struct NcclMessage {
  int peer;
  std::span<std::byte> data;  // device memory; not written to when it is sent
};

// Waits for all ranks; what is borrowed must outlive the group. Throws CommError. Of two ranks with
// one GPU NCCL says so.
std::unique_ptr<DeviceGroup> make_nccl_group(const NcclOptions& options);

// All at once, by a group that make_nccl_group() made. Bytes: those sent.
Work nccl_exchange(DeviceGroup& group, std::span<const NcclMessage> sends,
                   std::span<const NcclMessage> recvs, ProcessGroup::Limit deadline = {});

}  // namespace rondo
