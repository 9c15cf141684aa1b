// The CUDA vocabulary on the host; see kernels/simt/simt.h. Included by .cu files alone, when
// they are compiled for the host: it defines the names CUDA kernels use (threadIdx is a macro).
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/simt/sim/mbarrier_sim.h"
#include "kernels/simt/sim/mma_sim.h"
#include "kernels/simt/sim/observer.h"
#include "kernels/simt/sim/registers_sim.h"
#include "kernels/simt/sim/scheduler.h"

#define RONDO_GPU sim
#define RONDO_SM90 1
#define RONDO_UNROLL(n)
#define RONDO_UNROLL_ALL

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::rondo::simt::self->index)
#define blockIdx (::rondo::simt::self->block->index)
#define blockDim (::rondo::simt::self->block->config->block)
#define gridDim (::rondo::simt::self->block->config->grid)

namespace rondo::sim {

using simt::Where;
inline constexpr int warpSize = 32;

// ---- barriers ----

inline void __syncthreads(Where w = Where::current()) {
  simt::arrive_and_wait(simt::self->block->barrier, w);
}
inline void cluster_sync(Where w = Where::current()) { simt::cluster_sync(w); }
inline void cluster_arrive(Where w = Where::current()) { simt::cluster_arrive(w); }
inline void cluster_wait(Where w = Where::current()) { simt::cluster_wait(w); }
inline unsigned cluster_rank() { return simt::self->block->rank; }

// ---- warps ----

namespace detail {

template <class T>
T lane_value(const simt::Exchange::Slots& slots, int lane) {
  T value;
  std::memcpy(&value, slots.bytes[lane], sizeof value);
  return value;
}

// `source` is the lane to read from; -1: the caller's own value.
template <class T>
T shuffle(unsigned mask, T value, int source, const char* operation, Where w) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  const auto& slots = simt::exchange(mask, operation, &value, sizeof value, w);
  if (source < 0) return value;
  if (!(mask >> source & 1)) simt::fail_missing_lane(operation, source, w);
  return lane_value<T>(slots, source);
}

inline int segment(int width) { return static_cast<int>(simt::self->lane()) / width * width; }
inline int lane() { return static_cast<int>(simt::self->lane()); }

}  // namespace detail

inline void __syncwarp(unsigned mask = ~0u, Where w = Where::current()) {
  const char nothing = 0;
  simt::exchange(mask, "__syncwarp", &nothing, 1, w);
}
template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, Where w = Where::current()) {
  return detail::shuffle(mask, v, detail::segment(width) + (source & (width - 1)), "__shfl_sync",
                         w);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32, Where w = Where::current()) {
  const int source = detail::lane() ^ x;
  const bool inside = source < detail::segment(width) + width;
  return detail::shuffle(mask, v, inside ? source : -1, "__shfl_xor_sync", w);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, Where w = Where::current()) {
  const int source = detail::lane() - static_cast<int>(delta);
  const bool inside = source >= detail::segment(width);
  return detail::shuffle(mask, v, inside ? source : -1, "__shfl_up_sync", w);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, Where w = Where::current()) {
  const int source = detail::lane() + static_cast<int>(delta);
  const bool inside = source < detail::segment(width) + width;
  return detail::shuffle(mask, v, inside ? source : -1, "__shfl_down_sync", w);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, Where w = Where::current()) {
  const char vote = predicate != 0;
  const auto& slots = simt::exchange(mask, "__ballot_sync", &vote, 1, w);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) {
    if (mask >> i & 1) result |= static_cast<unsigned>(slots.bytes[i][0] != std::byte{0}) << i;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate, Where w = Where::current()) {
  return __ballot_sync(mask, predicate, w) != 0;
}
inline int __all_sync(unsigned mask, int predicate, Where w = Where::current()) {
  return __ballot_sync(mask, predicate, w) == mask;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }

// ---- memory ----

template <class T>
T& shared(Where w = Where::current()) {
  static_assert(std::is_trivially_default_constructible_v<T>, "nothing constructs shared memory");
  return *reinterpret_cast<T*>(simt::shared_memory(sizeof(T), alignof(T), w));
}
template <class T>
T* map_shared(T* mine, unsigned rank, Where w = Where::current()) {
  return reinterpret_cast<T*>(simt::map_shared(mine, rank, w));
}

template <int bytes>
void cp_async(void* to, const void* from, unsigned valid = bytes, Where w = Where::current()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  simt::cp_async(to, from, bytes, valid, w);
}
inline void cp_async_commit() { simt::cp_async_commit(); }
template <int groups_left>
void cp_async_wait() {
  simt::cp_async_wait(groups_left);
}

inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (simt::observer) simt::observer->fence();
}
inline void __threadfence_block() { __threadfence(); }
inline uint32_t load_acquire(const uint32_t* p) {
  const uint32_t v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
  if (simt::observer) simt::observer->acquired(p, sizeof v);
  return v;
}
inline void store_release(uint32_t* p, uint32_t v) {
  if (simt::observer) simt::observer->released(p, sizeof v);
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

// `bytes` (4, 8 or 16) at once; p must be aligned to them.
template <int bytes>
struct alignas(bytes) Words {
  uint32_t w[bytes / 4];
};
namespace detail {
inline void check_aligned(const void* p, uintptr_t bytes, Where w) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) simt::fail_unaligned(bytes, w);
}
}  // namespace detail
template <int bytes>
Words<bytes> load_words(const void* p, Where w = Where::current()) {
  detail::check_aligned(p, bytes, w);
  Words<bytes> words;
  std::memcpy(&words, p, bytes);
  return words;
}
template <int bytes>
void store_words(void* p, const Words<bytes>& words, Where w = Where::current()) {
  detail::check_aligned(p, bytes, w);
  std::memcpy(p, &words, bytes);
}
template <int bytes>
Words<bytes> load_relaxed(const void* p, Where w = Where::current()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  detail::check_aligned(p, bytes, w);
  if (simt::observer) simt::observer->relaxed(p, bytes, false);
  const auto* from = static_cast<const uint32_t*>(p);
  Words<bytes> words;
  for (int i = 0; i < bytes / 4; ++i) words.w[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
  return words;
}
template <int bytes>
void store_relaxed(void* p, const Words<bytes>& words, Where w = Where::current()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  detail::check_aligned(p, bytes, w);
  if (simt::observer) simt::observer->relaxed(p, bytes, true);
  auto* to = static_cast<uint32_t*>(p);
  for (int i = 0; i < bytes / 4; ++i) __atomic_store_n(to + i, words.w[i], __ATOMIC_RELAXED);
}

namespace detail {
template <class T, class F>
T update(T* p, F f) {
  if (simt::observer) simt::observer->updated(p, sizeof(T));
  T old, updated;
  __atomic_load(p, &old, __ATOMIC_SEQ_CST);
  do {
    updated = f(old);
  } while (!__atomic_compare_exchange(p, &old, &updated, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
}  // namespace detail

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return detail::update(p, [v](T old) { return old + v; });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return detail::update(p, [v](T old) { return old < v ? v : old; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return detail::update(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return detail::update(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return detail::update(p, [expected, v](T old) { return old == expected ? v : old; });
}

// ---- polling ----

inline void __nanosleep(unsigned, Where w = Where::current()) { simt::nap(w); }

template <class Condition>
void poll_until(Condition condition, Where w = Where::current()) {
  simt::poll_begin(w);
  while (!condition()) simt::poll_again();
  simt::poll_end();
}

// ---- mbarriers ----

using simt::MBarrier;
inline void mbarrier_init(MBarrier* b, unsigned count, Where w = Where::current()) {
  simt::mbarrier_init(*b, count, w);
}
inline void mbarrier_arrive(MBarrier* b, Where w = Where::current()) {
  simt::mbarrier_arrive(*b, 0, w);
}
inline void mbarrier_arrive_expecting(MBarrier* b, unsigned bytes, Where w = Where::current()) {
  simt::mbarrier_arrive(*b, bytes, w);
}
inline void mbarrier_wait(MBarrier* b, uint32_t phase, Where w = Where::current()) {
  poll_until([&] { return simt::mbarrier_passed(*b, phase, simt::Scope::block, w); }, w);
}
inline void mbarrier_wait_for_stores(MBarrier* b, uint32_t phase, Where w = Where::current()) {
  poll_until([&] { return simt::mbarrier_passed(*b, phase, simt::Scope::cluster, w); }, w);
}
inline void store_async(void* to, const Words<16>& words, MBarrier* b, unsigned rank,
                        Where w = Where::current()) {
  simt::store_async(to, &words, *b, rank, w);
}

template <int n>
void take_registers(Where w = Where::current()) {
  static_assert(n % 8 == 0 && n >= 24 && n <= 256);
  simt::take_registers(n, w);
}
template <int n>
void give_registers(Where w = Where::current()) {
  static_assert(n % 8 == 0 && n >= 24 && n <= 256);
  simt::give_registers(n, w);
}

// ---- arithmetic ----

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return static_cast<float>(x); }
inline bf16 to_bf16(float x) { return bf16(x); }

// to<T>(float): rounded to storage type T.
template <class T>
T to(float x);
template <>
inline float to<float>(float x) {
  return x;
}
template <>
inline bf16 to<bf16>(float x) {
  return to_bf16(x);
}

namespace detail {
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                const char* operation, void (*tile)(simt::Exchange::Slots&), Where w) {
  const simt::MmaOperands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto& slots = simt::exchange(~0u, operation, &mine, sizeof mine, w, tile);
  const auto product = lane_value<simt::MmaProduct>(slots, lane());
  for (int i = 0; i < 4; ++i) c[i] += product.c[i];
}
}  // namespace detail

inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         Where w = Where::current()) {
  detail::mma(c, a, b, "mma_m16n8k16", simt::mma_tile, w);
}
// The operands are TF32: f32 with zeros in the lower 13 bits.
inline void mma_m16n8k8_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             Where w = Where::current()) {
  if ((a[0] | a[1] | a[2] | a[3] | b[0] | b[1]) & 0x1fffu) simt::fail_not_tf32(w);
  detail::mma(c, a, b, "mma_m16n8k8_tf32", simt::mma_tile_tf32, w);
}

// ---- launching ----

// Enqueues the kernel on context.stream. The stream's synchronize() throws what goes wrong inside.
template <class... Parameters, class... Arguments>
void launch(const Context& context, const LaunchConfig& config, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  const auto thread = [kernel, ... values = static_cast<Parameters>(
                                   std::forward<Arguments>(arguments))] { kernel(values...); };
  using Closure = decltype(thread);
  static_assert(std::is_trivially_copyable_v<Closure> && alignof(Closure) <= 16,
                "a kernel's parameters are copied as bytes");
  simt::enqueue_grid(*context.stream, config, &thread, sizeof thread,
                     [](const void* closure) { (*static_cast<Closure*>(closure))(); });
}

template <class... Parameters>
int resident_clusters(const LaunchConfig& config, void (*)(Parameters...)) {
  return static_cast<int>(simt::resident_clusters(config.cluster));
}
template <class... Parameters>
int resident_blocks(const LaunchConfig&, void (*)(Parameters...)) {
  return static_cast<int>(simulated_multiprocessors);
}

}  // namespace rondo::sim
