// The functions that code compiled with -fsanitize=thread calls (GCC 12's list, and the few more of
// Clang's), in place of ThreadSanitizer's. Outside kernels they do nothing.
#include <cstdint>
#include <cstring>

#include "kernels/simt/instrument/monitor.h"

namespace {

using rondo::simt::AccessKind;

inline void note(const void* p, size_t bytes, AccessKind kind, const void* site) {
  if (rondo::simt::self == nullptr || rondo::simt::monitor == nullptr) return;
  rondo::simt::monitor->access(p, bytes, kind, site);
}

}  // namespace

#define RONDO_HERE __builtin_return_address(0)

#define RONDO_ACCESS(n)                                                                         \
  void __tsan_read##n(void* p) { note(p, n, AccessKind::read, RONDO_HERE); }                    \
  void __tsan_write##n(void* p) { note(p, n, AccessKind::write, RONDO_HERE); }                  \
  void __tsan_unaligned_read##n(void* p) { note(p, n, AccessKind::read, RONDO_HERE); }          \
  void __tsan_unaligned_write##n(void* p) { note(p, n, AccessKind::write, RONDO_HERE); }        \
  void __tsan_volatile_read##n(void* p) { note(p, n, AccessKind::read, RONDO_HERE); }           \
  void __tsan_volatile_write##n(void* p) { note(p, n, AccessKind::write, RONDO_HERE); }         \
  void __tsan_unaligned_volatile_read##n(void* p) { note(p, n, AccessKind::read, RONDO_HERE); } \
  void __tsan_unaligned_volatile_write##n(void* p) { note(p, n, AccessKind::write, RONDO_HERE); }

// The vocabulary tells the observer of its atomics itself; here they are only carried out.
#define RONDO_ATOMIC(bits)                                                                         \
  using a##bits = uint##bits##_t;                                                                  \
  a##bits __tsan_atomic##bits##_load(const volatile a##bits* p, int) {                             \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile a##bits* p, a##bits v, int) {                          \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_exchange(volatile a##bits* p, a##bits v, int) {                    \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_fetch_add(volatile a##bits* p, a##bits v, int) {                   \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_fetch_sub(volatile a##bits* p, a##bits v, int) {                   \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_fetch_and(volatile a##bits* p, a##bits v, int) {                   \
    return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_fetch_or(volatile a##bits* p, a##bits v, int) {                    \
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_fetch_xor(volatile a##bits* p, a##bits v, int) {                   \
    return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile a##bits* p, a##bits* expected,       \
                                                     a##bits v, int, int) {                        \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile a##bits* p, a##bits* expected,         \
                                                   a##bits v, int, int) {                          \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_compare_exchange_val(volatile a##bits* p, a##bits expected,        \
                                                     a##bits v, int, int) {                        \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                               \
  }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

RONDO_ACCESS(1)
RONDO_ACCESS(2)
RONDO_ACCESS(4)
RONDO_ACCESS(8)
RONDO_ACCESS(16)
void __tsan_read_range(void* p, long n) {
  note(p, static_cast<size_t>(n), AccessKind::read, RONDO_HERE);
}
void __tsan_write_range(void* p, long n) {
  note(p, static_cast<size_t>(n), AccessKind::write, RONDO_HERE);
}

RONDO_ATOMIC(8)
RONDO_ATOMIC(16)
RONDO_ATOMIC(32)
RONDO_ATOMIC(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

}  // extern "C"
