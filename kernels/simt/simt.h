// The one header of CUDA kernel sources (*.cu). The same source compiles
//   * with nvcc, for GPUs, in namespace rondo::cuda;
//   * with the host compiler, for the simulator, in namespace rondo::sim, through a line
//     that the build writes and that includes the .cu.
// Both can live in one library: everything a .cu defines goes into namespace rondo::RONDO_GPU.
//
//   #include "kernels/simt/simt.h"
//   namespace rondo::RONDO_GPU {
//   namespace {
//   struct SumShared { float part[32]; };
//   __global__ void sum(float* y, const float* x, int n) { auto& s = shared<SumShared>(); ... }
//   }  // namespace
//   void sum_gpu(const Context& context, const SumArgs& a) {
//     launch(context, {.kernel = "sum", .grid = {1}, .block = {256},
//            .shared_bytes = sizeof(SumShared)}, sum, y, x, n);
//   }
//   }  // namespace rondo::RONDO_GPU
//
// Rules: launch(), never <<<>>>; shared memory as one struct per kernel through shared<T>();
// `_sync` intrinsics only; polling through poll_until(); PTX only inside the wrappers of
// vocabulary_cuda.h, each with its twin in vocabulary_sim.h; what needs sm_90 inside
// `if constexpr`-like guards of the body (RONDO_SM90), never around a __global__ function.
//
// What both vocabularies offer, beside threadIdx, blockIdx, blockDim, gridDim, __syncthreads,
// __syncwarp, __shfl[_up|_down|_xor]_sync, __ballot_sync, __any_sync, __all_sync, __popc, __ffs,
// __clz, __threadfence, atomicAdd/Max/Min/Exch/CAS, __nanosleep and the C math functions:
//   shared<T>()                       this block's shared memory
//   grid_sync()                       cooperative launches; in kernels/simt/grid_sync.h
//   cluster_sync() cluster_rank()     clusters; map_shared(pointer, rank) is the same place in
//                                     another block's shared memory
//   cluster_arrive() cluster_wait()   cluster_sync() in two: what a thread did before it arrived is
//                                     visible to who has waited; what lies between is not ordered
//   cp_async<bytes>(to, from, valid)  4, 8 or 16 bytes, the part past `valid` zeroed; nothing may
//   cp_async_commit() cp_async_wait<groups left>()                   be read before the wait
//   load_words<bytes>(p) store_words(p, words)   4, 8 or 16 aligned bytes in one access
//   mma_m16n8k16(c, a, b)             bf16 operands, f32 sums, fragments as in the PTX manual
//   mma_m16n8k8_tf32(c, a, b)         the same with TF32: f32 whose lower 13 bits are zeros
//   load_acquire(p) store_release(p, v)   32-bit flags between blocks
//   load_relaxed<bytes>(p) store_relaxed(p, words)   4, 8 or 16 aligned bytes between blocks, each
//                                     32-bit word whole by itself; they order nothing else
//   mbarrier_init(b, count)           MBarriers in shared memory, sm_90; by one thread, and nobody
//                                     uses it before a barrier of the cluster
//   mbarrier_arrive(b) mbarrier_arrive_expecting(b, bytes)   one of its count; the phase then lacks
//                                     as many bytes more
//   mbarrier_wait(b, phase)           until that phase is over: 0, 1, 2, ...; ~0u is over before;
//                                     bounded. A GPU looks at the parity alone: it must be the
//                                     present phase or the one before
//   store_async(to, words, b, rank)   16 aligned bytes to the same place in another block's shared
//                                     memory; they arrive at its b, visible after
//   mbarrier_wait_for_stores(b, phase)
//   take_registers<n>() give_registers<n>()   by whole groups of four warps, sm_90a; in kernels
//                                     whose launch bounds say one block to a multiprocessor
//   poll_until(condition)             spins while !condition(); traps after some seconds on a GPU
//   to_float(bf16) to_bf16(float) to<T>(float)
//   RONDO_UNROLL_ALL                  before a loop whose index selects registers
// and, on the host, how much of a launch the device holds at once (0: it cannot run it):
//   resident_clusters(config, kernel) resident_blocks(config, kernel)
#pragma once

#include "kernels/base/gpu/launch.h"
#include "kernels/base/op.h"

#if defined(__CUDACC__)
#include "kernels/simt/vocabulary_cuda.h"
#else
#include "kernels/simt/sim/vocabulary_sim.h"
#endif
