// Host threads for CPU kernels: a fixed pool, deterministic static splits, no allocation per call.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "kernels/base/error.h"

namespace rondo {

// A non-owning reference to a callable; the callable must outlive the call.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// The system starts no further thread: there is a limit on processes or memory (ulimit -u, ulimit
// -v, a container's). The message says which thread, of how many, and the system's reason.
class NoThread : public InputError {
 public:
  using InputError::InputError;
};

// Threads that are created once; throws NoThread, without a thread left, if one cannot be. The
// calling thread is worker 0 of every call; size() == 1 runs everything inline. One call at a time
// per pool (calls from several threads are serialised). The first exception thrown by a worker is
// rethrown in the caller. In a process made by fork() the first call that needs threads starts them
// anew.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // body(worker) on `workers` threads at once (0 = all). They really run concurrently, so they
  // may meet at a SpinBarrier.
  void run(FunctionRef<void(int)> body, int workers = 0);

  // body(begin, end) over [0, n) split into at most size() contiguous parts, none smaller than
  // `grain` (but the last). The split depends on n, grain and size() alone.
  void for_range(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

  // body(i) for i in [0, n), handed out in increasing order to whoever is free: put the longest
  // jobs first. Use it only when the result does not depend on who runs what.
  void for_each(int64_t n, FunctionRef<void(int64_t)> body);

 private:
  struct Crew;
  Crew& crew();

  const int size_;
  std::atomic<Crew*> crew_;
};

// The CPUs this process may use, at least 1: its affinity, and what quotas of cgroups are worth.
int usable_cpus();

// The threads that a setting asks for: 0 stands for usable_cpus(). Throws InputError, which names
// `setting`, for less than 0, and for more than 256 and more than 16 per CPU.
int cpu_threads(int64_t wanted, const char* setting = "threads");

// A barrier for `n` threads that run concurrently: spins briefly, then yields, because the cores
// may be shared with others.
class SpinBarrier {
 public:
  explicit SpinBarrier(int n) : n_(n) {}
  void arrive_and_wait();

 private:
  const int n_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

}  // namespace rondo
