// The simulated GPU: device memory, streams and events on the host, for CUDA kernel sources that
// run through kernels/simt.
//
// Memory: separate allocations, filled with NaN bytes, so that what was never written shows.
//   Reading past an end gives NaN; a write past an end is reported, with the allocation's purpose,
//   by the stream that does it (builds with AddressSanitizer stop at the access instead).
//   Freeing first runs what this host thread has enqueued, as cudaFree does.
// Streams: enqueuing only queues. Work runs inside synchronize() (of a stream or an event) and
//   done(), in the calling thread. Each synchronize() draws from the seed of sim_options() whether
//   this thread's other streams lag behind as far as their events allow, run ahead, or are
//   interleaved at random: a missing event wait gives wrong results for some seeds. Streams made
//   by other threads run only as far as an event needs them. What is enqueued by enqueue_until() is
//   tried and left again: neither the thread nor its other streams wait for it, as a kernel that
//   spins leaves the host alone.
// Recording: work is kept as it was enqueued, and enqueued again by launch(). Event waits and
//   records cannot be recorded.
// Errors: a failing piece of work drops the rest of its stream, and of streams that wait for its
//   events; each such stream throws the error once, at its next synchronize().
//
// Thread safety: as every Device. Work of one stream never runs twice at once.
#pragma once

#include "kernels/base/device.h"
#include "kernels/simt/sim/scheduler.h"

namespace rondo {

// The process-wide simulated device.
Device& sim_device();

// What tests count: calls since the process began.
struct SimCounters {
  int64_t allocations = 0;
  int64_t stream_waits = 0;  // the host waited for a stream,
  int64_t event_waits = 0;   // or for an event
  int64_t launches = 0;      // of recorded work
  // Copies that were enqueued (not recorded ones again) between host memory and the device's.
  int64_t copies_to_host = 0, copies_from_host = 0;
  int64_t pieces = 0;  // of streams' work that have run: kernels, copies, fills
};
SimCounters sim_counters();

// Whether this is within memory that the device has handed out, which a host must not touch: to the
// host it looks like its own.
bool is_sim_memory(const void* memory);

// From now on allocate() refuses what would go beyond `bytes` in all; 0: no limit.
void set_sim_memory_limit(size_t bytes);

}  // namespace rondo
