#include "kernels/base/cpu/parallel.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cpu/cgroup.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

constexpr int spins_before_yield = 2000;

}  // namespace

void SpinBarrier::arrive_and_wait() {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  for (int spin = 0; generation_.load(std::memory_order_acquire) == generation; ++spin) {
    if (spin < spins_before_yield) {
      relax();
    } else {
      sched_yield();
    }
  }
}

struct ThreadPool::Crew {
  const Origin origin;
  std::mutex call_mutex;  // one call at a time
  std::mutex mutex;
  ConditionVariable wake, done;
  std::vector<Thread> threads;
  const FunctionRef<void(int)>* body = nullptr;
  std::atomic<uint64_t> call{0};
  std::atomic<int> running{0};
  int workers = 0;
  bool stop = false;
  std::exception_ptr error;

  explicit Crew(int size) {
    note_work();
    threads.reserve(static_cast<size_t>(size) - 1);
    try {
      for (int i = 1; i < size; ++i) {
        threads.push_back(
            start_thread(str("thread ", i + 1, " of ", size), [this, i] { work(i); }));
      }
    } catch (...) {
      end();
      throw;
    }
  }
  ~Crew() { end(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void work(int index) {
    uint64_t seen = 0;
    for (;;) {
      // A short spin first: kernels follow each other within microseconds.
      for (int spin = 0; spin < spins_before_yield && call.load(std::memory_order_acquire) == seen;
           ++spin) {
        relax();
      }
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stop || call.load(std::memory_order_relaxed) != seen; });
      if (stop) return;
      seen = call.load(std::memory_order_relaxed);
      if (index >= workers) continue;
      const FunctionRef<void(int)>* job = body;
      lock.unlock();
      invoke(*job, index);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard guard(mutex);
        done.notify_one();
      }
    }
  }

  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (Thread& t : threads) t.join();
    threads.clear();
  }

  void invoke(const FunctionRef<void(int)>& job, int index) {
    try {
      job(index);
    } catch (...) {
      std::lock_guard guard(mutex);
      if (!error) error = std::current_exception();
    }
  }
};

ThreadPool::ThreadPool(int threads) : size_(threads) {
  RONDO_CHECK(threads >= 1, "a pool needs at least one thread, got ", threads);
  crew_ = new Crew(threads);
}

// A crew of a parent process is left as it is: its threads are not here, and its mutex may be
// locked by one of them.
ThreadPool::~ThreadPool() {
  Crew* const last = crew_;
  if (last->origin.here()) delete last;
}

// Of several threads that find the crew of a parent process, the first to have a new one wins.
ThreadPool::Crew& ThreadPool::crew() {
  Crew* present = crew_.load();
  if (present->origin.here()) return *present;
  auto anew = std::make_unique<Crew>(size_);
  if (crew_.compare_exchange_strong(present, anew.get())) return *anew.release();
  return *present;
}

void ThreadPool::run(FunctionRef<void(int)> body, int workers) {
  if (workers <= 0 || workers > size()) workers = size();
  if (workers == 1) {
    body(0);
    return;
  }
  Crew& s = crew();
  std::lock_guard call_lock(s.call_mutex);
  {
    std::lock_guard lock(s.mutex);
    s.body = &body;
    s.workers = workers;
    s.error = nullptr;
    s.running.store(workers - 1, std::memory_order_relaxed);
    s.call.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.invoke(body, 0);
  for (int spin = 0; spin < spins_before_yield && s.running.load(std::memory_order_acquire) != 0;
       ++spin) {
    relax();
  }
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.running.load(std::memory_order_acquire) == 0; });
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

void ThreadPool::for_range(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t parts = std::min<int64_t>(size(), (n + grain - 1) / grain);
  if (parts <= 1) {
    body(0, n);
    return;
  }
  run([&](int worker) { body(n * worker / parts, n * (worker + 1) / parts); },
      static_cast<int>(parts));
}

void ThreadPool::for_each(int64_t n, FunctionRef<void(int64_t)> body) {
  if (n <= 0) return;
  std::atomic<int64_t> next{0};
  run(
      [&](int) {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(i);
      },
      static_cast<int>(std::min<int64_t>(size(), n)));
}

int usable_cpus() {
  cpu_set_t set;
  int cpus = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  // Asked once: the CTC functions for C want to know at every call.
  static const std::optional<double> quota = cgroup_cpus();
  if (quota && *quota < cpus) cpus = static_cast<int>(*quota);
  return std::max(cpus, 1);
}

int cpu_threads(int64_t wanted, const char* setting) {
  if (wanted == 0) return usable_cpus();
  const int most = std::max(256, 16 * usable_cpus());
  if (wanted < 0 || wanted > most) {
    fail_input(setting, ": ", wanted, ", expected 1 to ", most, ", or 0 for one per CPU");
  }
  return static_cast<int>(wanted);
}

}  // namespace rondo
