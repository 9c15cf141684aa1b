#include "kernels/base/cpu/parallel.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/base/cpu/cgroup.h"
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

std::thread start_thread(const std::string& what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    throw NoThread(str(what, " cannot be started: ", e.code().message(),
                       "; there is a limit on processes or memory"));
  }
}

struct ThreadPool::State {
  std::mutex call_mutex;  // one call at a time
  std::mutex mutex;
  std::condition_variable wake, done;
  std::vector<std::thread> threads;
  const FunctionRef<void(int)>* body = nullptr;
  std::atomic<uint64_t> call{0};
  std::atomic<int> running{0};
  int workers = 0;
  bool stop = false;
  std::exception_ptr error;

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
    for (auto& t : threads) t.join();
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

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  RONDO_CHECK(threads >= 1, "a pool needs at least one thread, got ", threads);
  state_->threads.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int i = 1; i < threads; ++i) {
      state_->threads.push_back(start_thread(str("thread ", i + 1, " of ", threads),
                                             [state = state_.get(), i] { state->work(i); }));
    }
  } catch (...) {
    state_->end();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

int ThreadPool::size() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run(FunctionRef<void(int)> body, int workers) {
  if (workers <= 0 || workers > size()) workers = size();
  if (workers == 1) {
    body(0);
    return;
  }
  State& s = *state_;
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

}  // namespace rondo
