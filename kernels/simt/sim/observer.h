// What the simulator tells whoever watches it: the instrumented build (kernels/simt/instrument.h)
// counts memory traffic and finds races. Ordinary builds have no observer, and pay one branch per
// barrier, launch and allocation.
//
// Thread safety: set_observer() before anything is allocated or launched. begin_grid() to
// end_grid() may come from several host threads; an observer that keeps one state makes them wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/sim/scheduler.h"

namespace rondo::simt {

enum class Space : uint8_t { global, shared };

class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;

  // Memory of the simulated device. `guard` bytes before and after belong to nobody.
  virtual std::byte* allocate(size_t bytes, size_t guard, Space space, const char* purpose) = 0;
  virtual void deallocate(std::byte* data) noexcept = 0;

  virtual void begin_grid(const LaunchConfig& config) = 0;
  virtual void end_grid() noexcept = 0;
  // The observer may set gang.failure at any time, which ends the kernel.
  virtual void begin_gang(Gang& gang) = 0;
  virtual void end_gang() noexcept = 0;

  // All threads of the barrier have arrived; called in one of them (`self`).
  virtual void completed(const Barrier& barrier) = 0;
  // `self` arrives at the cluster's barrier, and has waited for the generation it arrived in. Such
  // a generation (Barrier::split) orders what came before an arrival and what comes after a wait.
  virtual void arrived(const Barrier& barrier) = 0;
  virtual void waited(const Barrier& barrier) = 0;
  // All lanes of `mask` have met; called in the last of them. Of all operations __syncwarp alone
  // orders memory.
  virtual void met(const Exchange& exchange) = 0;

  // By `self`, in code that is not compiled with instrumentation itself.
  virtual void accessed(const void* p, size_t bytes, bool write) = 0;
  // cp.async: the copy may happen at any time between the two calls.
  virtual void copy_issued(const AsyncCopy& copy) = 0;
  virtual void copy_landed(const AsyncCopy& copy) = 0;

  virtual void fence() = 0;                                           // __threadfence()
  virtual void relaxed(const void* p, size_t bytes, bool write) = 0;  // atomic, and orders nothing
  // A read-modify-write that orders nothing by itself, as CUDA's atomics; with a fence before it
  // or after it, it does.
  virtual void updated(const void* p, size_t bytes) = 0;
  // What `self` did before released(p) is visible to a thread after acquired(p). For a flag of
  // `bytes` bytes in memory; bytes = 0: for any other object, such as an mbarrier.
  virtual void released(const void* p, size_t bytes) = 0;
  virtual void acquired(const void* p, size_t bytes) = 0;
};

// Null without instrumentation.
extern constinit Observer* observer;

inline void set_observer(Observer* o) { observer = o; }

// For device and shared memory: from the observer if there is one, else from the heap.
std::byte* allocate_simulated(size_t bytes, size_t guard, Space space, const char* purpose);
void free_simulated(std::byte* data, size_t guard) noexcept;

}  // namespace rondo::simt
