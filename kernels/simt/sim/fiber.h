// Fibers: a function on its own stack that can stop in the middle and go on later.
//
// Used by the scheduler of kernels/simt alone: one fiber per CUDA thread. The context switch is a
// dozen instructions on x86-64 and swapcontext elsewhere. AddressSanitizer and ThreadSanitizer are
// told of every switch.
//
// Thread safety: a fiber is created, resumed and finished by one host thread. A fiber that has
// started must run to its end before it is destroyed, or what lives on its stack leaks; the
// scheduler unwinds the others when one of them fails.
#pragma once

#include <cstddef>
#include <vector>

// AddressSanitizer watches what fibers run. RONDO_ASAN_KERNELS says so to who switches them:
// compiled for the sanitizer as well, that would be a quarter of the time of all that runs, and
// show nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(RONDO_ASAN_KERNELS)
#define RONDO_ASAN_FIBERS
#endif

namespace rondo::simt {

// The code that resumes fibers, on the host thread's own stack.
struct FiberHost {
  void* context = nullptr;  // saved stack pointer, or ucontext_t
  // For AddressSanitizer, which tells them when a fiber arrives from there, and ThreadSanitizer.
  const void* stack = nullptr;
  size_t bytes = 0;
  void* record = nullptr;
};

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The first resume() or switch_to() will call entry(argument) on `stack`. The caller keeps stack
  // and host alive and the stack unshared until finished(). Exceptions must not leave `entry`.
  void prepare(FiberHost& host, std::byte* stack, size_t bytes, void (*entry)(void*),
               void* argument);

  // By the host: runs until this fiber, or one that it has switched to, suspends or finishes.
  void resume();

  // From inside the fiber: back to the host.
  void suspend();

  // From inside the fiber: on to another of the same host, which is prepared and not running.
  void switch_to(Fiber& next);

  bool started() const { return stack_ != nullptr; }
  bool finished() const { return finished_; }
  std::byte* stack() const { return stack_; }
  // Whether the fiber has written over the far end of its stack.
  bool overflowed() const;

 private:
  [[noreturn]] static void enter(Fiber* fiber);
  void arrive();
  void leave_for_good();

  void* context_ = nullptr;  // saved stack pointer, or ucontext_t
  bool finished_ = false;
  std::byte* stack_ = nullptr;
  size_t bytes_ = 0;
  FiberHost* host_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;  // AddressSanitizer's

  friend struct FiberEntry;
};

// Stacks for fibers, reused last-in first-out, so that fibers that never wait share one warm stack.
class StackPool {
 public:
  explicit StackPool(size_t stack_bytes) : stack_bytes_(stack_bytes) {}
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  std::byte* take();
  void give_back(std::byte* stack) { free_.push_back(stack); }
  size_t stack_bytes() const { return stack_bytes_; }
  // Returns the memory to the system when more than `keep` stacks exist. All must be given back.
  void trim(size_t keep);

 private:
  struct Slab {
    std::byte* memory;
    size_t bytes;
  };
  size_t stack_bytes_;
  std::vector<Slab> slabs_;
  std::vector<std::byte*> free_;
};

}  // namespace rondo::simt
