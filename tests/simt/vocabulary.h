// Kernels that use every word of kernels/simt once, compiled for the host (rondo::sim) and, where
// the toolkit is, for GPUs (rondo::cuda). All pointers are device memory.
#pragma once

#include "kernels/base/op.h"

namespace rondo {

#define RONDO_DECLARE_VOCABULARY(ns)                                                               \
  namespace ns {                                                                                   \
  /* y[r] = sum of x[r][0..n), one block of 128 threads per row: shuffles, shared memory, barrier  \
   */                                                                                              \
  void row_sums(const Context& context, float* y, const float* x, int rows, int n);                \
  /* out[32 * k + lane] = result of warp operation k, 10 operations */                             \
  void warp_operations(const Context& context, int* out);                                          \
  constexpr int warp_operation_count = 10;                                                         \
  /* counts[0] += threads, counts[1] = max index, counts[2] = min index + 1, ... */                \
  void atomics(const Context& context, int* counts, float* sum, int blocks, int threads);          \
  /* threads at and past `live` return before the barrier; *count = live */                        \
  void early_exit(const Context& context, int* count, int live);                                   \
  /* h[t+1] = tanh(U h[t] + x[t]), a grid barrier per step, 4 blocks of 16 threads, H = 64 */      \
  void persistent_rnn(const Context& context, float* h, const float* u, const float* x,            \
                      int steps);                                                                  \
  /* clusters of 4: y[block] = sum over its cluster of (block + 1) x (rank + 1) */                 \
  void cluster_sums(const Context& context, float* y, int clusters);                               \
  /* the same in a cooperative launch: ranks count within the cluster; then y[0] = sum of all */   \
  void cooperative_clusters(const Context& context, float* y, int clusters);                       \
  /* in clusters of `size` (up to 16), every block stores (block + 1) x (rank + 1) into each       \
   * other's shared memory; y[block] = the sum of what it was given */                             \
  void cluster_stores(const Context& context, float* y, int clusters, int size);                   \
  /* in clusters of 4 with 32 threads, each thread starts with 100 block + thread, which goes      \
   * round the cluster `rounds` times, plus one each time, by the barrier in two; y[block][thread] \
   * = what thread 31 - thread has then, plus 0 + 1 + ... + (rounds - 1) */                        \
  void split_barrier(const Context& context, float* y, int clusters, int rounds);                  \
  /* two groups of 128 threads take the registers that a first one gives; y[i] = x[i] squared,     \
   * 384 elements, and of the takers plus the sum of x[i % 64 .. i % 64 + 64) */                   \
  void trade_registers(const Context& context, float* y, const float* x);                          \
  /* in clusters of 4, each block passes 8 x 4 words on to the next, `rounds` times, each round    \
   * plus one; y[block] = those it has then. It started with 100 block + their number. */          \
  void pass_around(const Context& context, uint32_t* y, int clusters, int rounds);                 \
  /* y = x reversed in tiles of 128, through cp.async of 16, 8 and 4 bytes; x has `valid` elements \
   */                                                                                              \
  void async_reverse(const Context& context, float* y, const float* x, int valid);                 \
  /* C[16][8] = A[16][16] B[8][16]^T */                                                            \
  void mma(const Context& context, float* c, const bf16* a, const bf16* b);                        \
  /* C[16][8] = A[16][8] B[8][8]^T, of TF32 */                                                     \
  void mma_tf32(const Context& context, float* c, const float* a, const float* b);                 \
  /* y = a / b */                                                                                  \
  void divide(const Context& context, float* y, const float* a, const float* b, int n);            \
  /* block b waits for block b-1's flag and adds one; y[b] = b */                                  \
  void relay(const Context& context, uint32_t* flags, int* y, int blocks);                         \
  /* block b passes on block b-1's words plus one, block 0 those of 1, 2, ... 8; y[b] = their sum  \
   */                                                                                              \
  void pass_words(const Context& context, uint32_t* words, uint32_t* y, int blocks);               \
  /* y = x through bf16 */                                                                         \
  void round_trip(const Context& context, float* y, const float* x, int n);                        \
  /* y[i] = i, with 200 KB of shared memory in between */                                          \
  void large_shared(const Context& context, int* y);                                               \
  /* launches that the driver and the simulator refuse */                                          \
  void too_many_threads(const Context& context);                                                   \
  void too_much_shared(const Context& context);                                                    \
  void nothing_to_launch(const Context& context);                                                  \
  }

RONDO_DECLARE_VOCABULARY(sim)
RONDO_DECLARE_VOCABULARY(cuda)
#undef RONDO_DECLARE_VOCABULARY

}  // namespace rondo
