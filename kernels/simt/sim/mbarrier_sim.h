// mbarrier objects on the host: in shared memory, for arrivals of threads and of bytes that other
// blocks of the cluster store (PTX ISA manual, "Parallel Synchronization and Communication
// Instructions: mbarrier").
//
// A phase ends when as many threads have arrived as the object counts, and as many bytes as they
// said to expect; bytes may come before anyone expects them. Bytes land at once.
#pragma once

#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

// 8 bytes, as on the device; what it counts is in its block's MBarrierState.
struct alignas(8) MBarrier {
  uint64_t stamp;
};

// Errors end the kernel: a count of 0, too many arrivals, an object that was never made, was made
// twice (there is no mbarrier.inval here) or was written over.
void mbarrier_init(MBarrier& barrier, unsigned count, Where where);
void mbarrier_arrive(MBarrier& barrier, unsigned expected_bytes, Where where);
// Whether the phase is over; then what was done before its arrivals is visible in the scope.
// Errors: neither the present phase nor the one before, which a parity takes for another; bytes of
// another block in it, and a scope that is the block's.
enum class Scope : uint8_t { block, cluster };
bool mbarrier_passed(const MBarrier& barrier, uint32_t phase, Scope scope, Where where);
// 16 aligned bytes to where `to` is in the shared memory of block `rank`; they arrive at its
// `barrier`.
void store_async(void* to, const void* words, MBarrier& barrier, unsigned rank, Where where);

// By the last thread of the block, as it exits: that nothing is stored there any more.
void check_mbarriers_at_exit(const Block& block);

}  // namespace rondo::simt
