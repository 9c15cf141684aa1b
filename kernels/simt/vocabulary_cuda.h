// The vocabulary of kernels/simt/simt.h on a GPU. Every asm statement of the project's kernels is
// here, with its twin in vocabulary_sim.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/base/gpu/cuda_check.h"

#define RONDO_GPU cuda
// Before a loop: unroll it n times.
#define RONDO_PRAGMA(text) _Pragma(#text)
#define RONDO_UNROLL(n) RONDO_PRAGMA(unroll n)
#define RONDO_UNROLL_ALL RONDO_PRAGMA(unroll)
// Whether clusters and the like exist for the architecture being compiled (true on the host).
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define RONDO_SM90 1
#else
#define RONDO_SM90 0
#endif

namespace rondo::cuda {

// ---- barriers ----

// On older architectures a cluster has one block; launch() refuses others.
__device__ inline void cluster_arrive() {
#if RONDO_SM90
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if RONDO_SM90
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}
__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
__device__ inline unsigned cluster_rank() {
  unsigned rank = 0;
#if RONDO_SM90
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// ---- memory ----

template <class T>
__device__ T& shared() {
  static_assert(alignof(T) <= 128);
  extern __shared__ __align__(128) unsigned char rondo_shared_memory[];
  return *reinterpret_cast<T*>(rondo_shared_memory);
}
template <class T>
__device__ T* map_shared(T* mine, [[maybe_unused]] unsigned rank) {
#if RONDO_SM90
  T* theirs = nullptr;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
#else
  return mine;
#endif
}

template <int bytes>
__device__ void cp_async(void* to, const void* from, unsigned valid = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  const auto shared_address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address), "l"(__cvta_generic_to_global(from)), "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(shared_address), "l"(__cvta_generic_to_global(from)), "n"(bytes), "r"(valid)
                 : "memory");
  }
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups_left>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

__device__ inline uint32_t load_acquire(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(v)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return v;
}
__device__ inline void store_release(uint32_t* p, uint32_t v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(v)
               : "memory");
}

// `bytes` (4, 8 or 16) at once; p must be aligned to them.
template <int bytes>
struct alignas(bytes) Words {
  uint32_t w[bytes / 4];
};
template <int bytes>
__device__ Words<bytes> load_words(const void* p) {
  return *static_cast<const Words<bytes>*>(p);
}
template <int bytes>
__device__ void store_words(void* p, const Words<bytes>& words) {
  *static_cast<Words<bytes>*>(p) = words;
}
template <int bytes>
__device__ Words<bytes> load_relaxed(const void* p) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  const auto from = __cvta_generic_to_global(p);
  Words<bytes> v;
  if constexpr (bytes == 4) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v.w[0]) : "l"(from) : "memory");
  } else if constexpr (bytes == 8) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.w[0]), "=r"(v.w[1])
                 : "l"(from)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(from)
                 : "memory");
  }
  return v;
}
template <int bytes>
__device__ void store_relaxed(void* p, const Words<bytes>& v) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  const auto to = __cvta_generic_to_global(p);
  if constexpr (bytes == 4) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v.w[0]) : "memory");
  } else if constexpr (bytes == 8) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.w[0]), "r"(v.w[1])
                 : "memory");
  } else {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.w[0]),
                 "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
                 : "memory");
  }
}

// ---- polling ----

// Bounded: after 2^23 turns (half a second when the condition looks at shared memory, some seconds
// at most when it looks at another block's) the kernel traps rather than hang the device.
template <class Condition>
__device__ void poll_until(Condition condition) {
  for (uint32_t turn = 0; !condition(); ++turn) {
    if (turn >= 1u << 23) __trap();
    if (turn > 64) __nanosleep(32);
  }
}

// ---- mbarriers ----

struct alignas(8) MBarrier {
  uint64_t state;
};
namespace detail {
__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
// Sleeps until it has, or for as long as the device lets it. What other blocks of the cluster have
// stored is visible only to who acquires it from the whole cluster.
template <bool of_cluster>
__device__ bool mbarrier_passed([[maybe_unused]] const MBarrier* b,
                                [[maybe_unused]] unsigned parity) {
  unsigned passed = 1;
#if RONDO_SM90
  if constexpr (of_cluster) {
    asm volatile(
        "{\n"
        ".reg .pred passed;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 passed, [%1], %2;\n"
        "selp.u32 %0, 1, 0, passed;\n"
        "}"
        : "=r"(passed)
        : "r"(shared_address(b)), "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred passed;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 passed, [%1], %2;\n"
        "selp.u32 %0, 1, 0, passed;\n"
        "}"
        : "=r"(passed)
        : "r"(shared_address(b)), "r"(parity)
        : "memory");
  }
#endif
  return passed != 0;
}
// Bounded: after 2^32 cycles (two seconds) the kernel traps rather than hang the device.
template <bool of_cluster>
__device__ void mbarrier_wait(const MBarrier* b, uint32_t phase) {
  const unsigned parity = phase & 1u;
  if (mbarrier_passed<of_cluster>(b, parity)) return;
  const long long start = clock64();
  while (!mbarrier_passed<of_cluster>(b, parity)) {
    if (clock64() - start > 1ll << 32) __trap();
  }
}
}  // namespace detail

__device__ inline void mbarrier_init([[maybe_unused]] MBarrier* b,
                                     [[maybe_unused]] unsigned count) {
#if RONDO_SM90
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;\n"
      "fence.mbarrier_init.release.cluster;" ::"r"(detail::shared_address(b)),
      "r"(count)
      : "memory");
#endif
}
__device__ inline void mbarrier_arrive([[maybe_unused]] MBarrier* b) {
#if RONDO_SM90
  asm volatile(
      "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(detail::shared_address(b))
      : "memory");
#endif
}
__device__ inline void mbarrier_arrive_expecting([[maybe_unused]] MBarrier* b,
                                                 [[maybe_unused]] unsigned bytes) {
#if RONDO_SM90
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                   detail::shared_address(b)),
               "r"(bytes)
               : "memory");
#endif
}
__device__ inline void mbarrier_wait(MBarrier* b, uint32_t phase) {
  detail::mbarrier_wait<false>(b, phase);
}
__device__ inline void mbarrier_wait_for_stores(MBarrier* b, uint32_t phase) {
  detail::mbarrier_wait<true>(b, phase);
}
__device__ inline void store_async([[maybe_unused]] void* to,
                                   [[maybe_unused]] const Words<16>& words,
                                   [[maybe_unused]] MBarrier* b, [[maybe_unused]] unsigned rank) {
#if RONDO_SM90
  asm volatile(
      "{\n"
      ".reg .u32 to, barrier;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [to], {%3, %4, %5, %6}, "
      "[barrier];\n"
      "}" ::"r"(detail::shared_address(to)),
      "r"(detail::shared_address(b)), "r"(rank), "r"(words.w[0]), "r"(words.w[1]), "r"(words.w[2]),
      "r"(words.w[3])
      : "memory");
#endif
}

// The 128 threads of four warps, the first a multiple of four, go up to n registers each, or down
// to n, once, in kernels whose launch bounds leave that many.
template <int n>
__device__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
#endif
}
template <int n>
__device__ void give_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
#endif
}

// ---- arithmetic ----

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
// As bf16(float) of kernels/base/dtype.h.
__device__ inline bf16 to_bf16(float x) {
  const uint32_t u = __float_as_uint(x);
  bf16 y;
  y.bits = static_cast<uint16_t>(
      (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  return y;
}

// to<T>(float): rounded to storage type T.
template <class T>
__device__ T to(float x);
template <>
__device__ inline float to<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 to<bf16>(float x) {
  return to_bf16(x);
}

__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The operands are TF32: f32 with zeros in the lower 13 bits.
__device__ inline void mma_m16n8k8_tf32(float (&c)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- launching ----

// Enqueues the kernel on context.stream. Throws Error naming the kernel and its shape when the
// launch is refused; what goes wrong inside shows at the stream's synchronize().
template <class... Parameters, class... Arguments>
void launch(const Context& context, const LaunchConfig& config, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  check_launch(config);
  const auto launch_with = [&](Parameters... values) {
    void* pointers[sizeof...(Parameters) + 1] = {
        const_cast<void*>(static_cast<const void*>(&values))...};
    rondo::detail::launch_cuda(context, config, reinterpret_cast<const void*>(kernel), pointers);
  };
  launch_with(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

template <class... Parameters>
int resident_clusters(const LaunchConfig& config, void (*kernel)(Parameters...)) {
  return rondo::detail::resident_clusters(config, reinterpret_cast<const void*>(kernel));
}
template <class... Parameters>
int resident_blocks(const LaunchConfig& config, void (*kernel)(Parameters...)) {
  return rondo::detail::resident_blocks(config, reinterpret_cast<const void*>(kernel));
}

}  // namespace rondo::cuda
