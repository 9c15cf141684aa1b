// Threads of the library, and what is left of them in a process made by fork().
//
// Such a process (the child) has one thread, the one that called fork(). The others that an object
// had started are not there, so joining one, or destroying a condition variable that one waited at,
// would wait for ever. The classes here know the process in which they were made, and do neither
// in another. What a mutex guarded when a thread was within it at the time of fork() stays locked.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "kernels/base/cpu/parallel.h"

namespace rondo {

// The process in which an object was made.
class Origin {
 public:
  bool here() const { return ::getpid() == process_; }

 private:
  pid_t process_ = ::getpid();
};

// Every pool and every thread tells that the library is at work in this process.
void note_work();
// Throws InputError, "training: ...", in a process that fork() made after the library was at work
// in its parent. Recognition goes on there; training has too much that two processes cannot share:
// connections between ranks, files that are being written, a GPU.
void refuse_after_fork(const std::string& what);

// A std::thread that a child process forgets: it is not joinable there, and its destructor does
// nothing.
class Thread {
 public:
  Thread() = default;
  explicit Thread(std::function<void()> body)
      : thread_(std::make_unique<std::thread>(std::move(body))) {}
  ~Thread() { forget(); }
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    forget();
    thread_ = std::move(other.thread_);
    origin_ = other.origin_;
    return *this;
  }

  bool joinable() const { return thread_ && thread_->joinable() && origin_.here(); }
  void join() {
    if (joinable()) thread_->join();
  }
  void detach() {
    if (joinable()) thread_->detach();
  }

 private:
  // Even its memory is left alone in a child: the thread's description lies in it.
  void forget() {
    if (thread_ && thread_->joinable() && !origin_.here()) static_cast<void>(thread_.release());
  }

  std::unique_ptr<std::thread> thread_;
  Origin origin_;
};

// A std::condition_variable that a child process does not destroy.
class ConditionVariable {
 public:
  ConditionVariable() : of_system_() {}
  ~ConditionVariable() {
    if (origin_.here()) of_system_.~condition_variable();
  }
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;

  using Lock = std::unique_lock<std::mutex>;
  void notify_one() { of_system_.notify_one(); }
  void notify_all() { of_system_.notify_all(); }
  void wait(Lock& lock) { of_system_.wait(lock); }
  template <class Predicate>
  void wait(Lock& lock, Predicate predicate) {
    of_system_.wait(lock, std::move(predicate));
  }
  template <class Duration>
  std::cv_status wait_for(Lock& lock, const Duration& longest) {
    return of_system_.wait_for(lock, longest);
  }
  template <class Duration, class Predicate>
  bool wait_for(Lock& lock, const Duration& longest, Predicate predicate) {
    return of_system_.wait_for(lock, longest, std::move(predicate));
  }
  template <class Time>
  std::cv_status wait_until(Lock& lock, const Time& time) {
    return of_system_.wait_until(lock, time);
  }
  template <class Time, class Predicate>
  bool wait_until(Lock& lock, const Time& time, Predicate predicate) {
    return of_system_.wait_until(lock, time, std::move(predicate));
  }

 private:
  union {
    std::condition_variable of_system_;
  };
  const Origin origin_;
};

// For what a child process cannot take apart: it stays as it is, for ever.
template <class T>
void leave_behind(T& value) {
  static_cast<void>(new T(std::move(value)));
}

// Every thread of the library is started here, because a std::thread that cannot be made throws
// something that names nothing. Throws NoThread: "WHAT cannot be started: ...".
Thread start_thread(const std::string& what, std::function<void()> body);

}  // namespace rondo
