// ProcessGroup: collectives and messages among a set of ranks.
//
// Every rank of the group issues the same collectives with the same shapes in the same order. They
// run one after the other in that order, beside the calling thread, so a reduction overlaps
// whatever the caller computes meanwhile; each returns a Work, and who waits for the next one may
// run it. The memory of an operation belongs to it until its Work is done. All scratch memory is
// allocated when the group is made.
//
// Failure: the first collective that fails ends the group (later ones fail at once with `aborted`
// and the first cause), and what this rank saw is passed on to all ranks by Transport::abort, so
// that nobody waits for a sum that cannot come. Recover by building the transport and the group
// anew. Dropping the Work of an unfinished collective, or the group itself, ends the group on this
// rank alone: whoever unwinds knows the cause better than we do and is expected to call abort.
//
// Thread safety: members may be called from any thread, but then the order of collectives is the
// callers' concern.
// Errors: misuse (dtype, root, ranks) is an Error, at the call; everything else is a CommError,
// from the Work.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "kernels/base/tensor.h"

namespace rondo {

enum class Reduction : uint8_t { sum };

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  // The rank within the group.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // A deadline of nullopt is the group's time-out, counted from the call.
  using Limit = std::optional<Deadline>;

  // Works in place on f32 or f64 of any shape, dense. The bits are the same on every rank and in
  // every run.
  virtual Work all_reduce(const TensorView& data, Reduction op, Limit deadline = {}) = 0;
  // Works in place on f32 or f64. Chunk rank() of the elements seen as size() chunks (chunk_range
  // of collectives.h) becomes the sum over all ranks; what the other chunks hold afterwards is
  // unspecified.
  virtual Work reduce_scatter(const TensorView& data, Reduction op, Limit deadline = {}) = 0;
  // Works in place on any dtype. Chunk r becomes rank r's chunk r, on all ranks.
  virtual Work all_gather(const TensorView& data, Limit deadline = {}) = 0;
  // Works in place on any dtype. All ranks get root's data.
  virtual Work broadcast(const TensorView& data, int root, Limit deadline = {}) = 0;
  // Done once every rank has issued it and all its earlier collectives are done.
  virtual Work barrier(Limit deadline = {}) = 0;

  // These are not ordered with the collectives; see Transport. `peer` is a rank of the group.
  virtual Work send(int peer, uint32_t tag, std::span<const std::byte> data,
                    Limit deadline = {}) = 0;
  virtual Work recv(int peer, uint32_t tag, std::span<std::byte> data, Limit deadline = {}) = 0;

  // All ranks of the transport stop, with this reason.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// How sums travel. `bf16` halves the bytes of f32 data: partial sums are rounded to bf16 (to
// nearest, ties to even) for each of the N-1 hops, and added in f32; the result is a bf16 value,
// the same on all ranks. Other dtypes and collectives are not affected.
enum class Wire : uint8_t { exact, bf16 };

// An all-reduce by somebody else: sums `data` (f32 or f64, host memory) over all ranks of the
// group, in the calling thread; `number` is the collective's, equal on all ranks. Throws CommError.
using AllReduce = std::function<void(const TensorView& data, uint32_t number, Deadline deadline)>;

struct GroupOptions {
  // World ranks in group order; empty: all ranks. The calling rank must be among them.
  std::vector<int> members;
  // Groups that share a rank need different ids.
  uint16_t id = 0;
  CommClock::duration timeout = std::chrono::minutes(5);
  // Largest message of a collective; the group allocates six of them.
  size_t message_bytes = size_t{2} << 20;
  Wire wire = Wire::exact;
  // Before each collective neighbours compare what they are about to do (one small message per
  // rank). Ranks that disagree get a mismatch that names both sides, instead of a hang or a wrong
  // sum. All ranks of a group choose alike.
  bool verify = true;
  // all_reduce is one ring of all ranks also where they lie on several machines.
  bool one_ring = false;
  // Used instead of the ring when there is one; `wire` has no effect on it, and its Works report no
  // bytes.
  AllReduce all_reduce{};
};

// The project's own ring over the transport's send and recv, on host memory; where ranks lie on
// several machines (Transport::machine_of), as many on each, all_reduce is rings inside machines
// and between them; a few f64 are summed in fewer rounds (collectives.h). The transport must
// outlive the group.
std::unique_ptr<ProcessGroup> make_ring_group(Transport& transport, GroupOptions options = {});

}  // namespace rondo
