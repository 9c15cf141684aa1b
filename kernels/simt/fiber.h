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
#include <memory>
#include <vector>

namespace rondo::simt {

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The first resume() will call entry(argument) on `stack`, which the caller keeps alive and
  // unshared until finished(). Exceptions must not leave `entry`.
  void prepare(std::byte* stack, size_t bytes, void (*entry)(void*), void* argument);

  // Runs until the fiber suspends or finishes. Not from inside a fiber.
  void resume();

  // From inside the fiber: back to whoever resumed it.
  void suspend();

  bool started() const { return stack_ != nullptr; }
  bool finished() const { return finished_; }
  std::byte* stack() const { return stack_; }
  // Whether the fiber has written over the far end of its stack.
  bool overflowed() const;

 private:
  [[noreturn]] static void enter(Fiber* fiber);
  void leave_for_good();

  void* context_ = nullptr;  // saved stack pointer, or ucontext_t
  void* resumer_ = nullptr;
  std::byte* stack_ = nullptr;
  size_t bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool finished_ = false;
  // For AddressSanitizer: the resumer's stack, and this fiber's fake frames.
  const void* resumer_stack_ = nullptr;
  size_t resumer_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* resumer_record_ = nullptr;  // ThreadSanitizer's, of the resumer

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
