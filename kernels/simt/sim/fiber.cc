#include "kernels/simt/sim/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "kernels/base/error.h"

// In functions that never return, or call such: ThreadSanitizer counts calls per fiber, and
// AddressSanitizer forgets all that is forbidden on a stack that it believes to be left, by a
// system call, at the end of every fiber.
#if defined(RONDO_ASAN_FIBERS)
#include <sanitizer/common_interface_defs.h>
#define RONDO_UNWATCHED __attribute__((no_sanitize("address"), noinline))
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#if defined(__clang__)  // counts calls also where it watches no memory
#define RONDO_UNWATCHED __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define RONDO_UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#endif
#else
#define RONDO_UNWATCHED
#endif

#if !defined(__x86_64__) || defined(RONDO_SIMT_UCONTEXT)
#include <ucontext.h>
#define RONDO_SIMT_USES_UCONTEXT 1
#endif

namespace rondo::simt {

// What the assembly and makecontext call; C linkage names cannot be members.
struct FiberEntry {
  [[noreturn]] RONDO_UNWATCHED static void enter(Fiber* fiber) { Fiber::enter(fiber); }
};

}  // namespace rondo::simt

extern "C" {
// Pushes the callee-saved registers, stores the stack pointer in *save, and goes on where `load`
// was saved. The x87 and SSE control words are the same in all fibers, so they are not switched.
void rondo_simt_switch(void** save, void* load);
void rondo_simt_start();
[[noreturn]] RONDO_UNWATCHED __attribute__((used)) void rondo_simt_enter(void* fiber) {
  rondo::simt::FiberEntry::enter(static_cast<rondo::simt::Fiber*>(fiber));
}
}

#ifndef RONDO_SIMT_USES_UCONTEXT
// The .cfi_undefined in rondo_simt_start ends stack walks there.
asm(R"(
.text
.p2align 4
.globl rondo_simt_switch
.hidden rondo_simt_switch
.type rondo_simt_switch,@function
rondo_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rondo_simt_switch,.-rondo_simt_switch
.p2align 4
.globl rondo_simt_start
.hidden rondo_simt_start
.type rondo_simt_start,@function
rondo_simt_start:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  call rondo_simt_enter
  ud2
  .cfi_endproc
.size rondo_simt_start,.-rondo_simt_start
)");
#endif

namespace rondo::simt {
namespace {

constexpr uint64_t canary = 0x5ca1ab1e0ddba11full;

void announce_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                     [[maybe_unused]] size_t bytes) {
#if defined(RONDO_ASAN_FIBERS)
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
}

void announce_arrival([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                      [[maybe_unused]] size_t* bytes) {
#if defined(RONDO_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
#endif
}

// ThreadSanitizer's record of a fiber lives as long as the stack: to make one is slow.
[[maybe_unused]] void*& thread_record(std::byte* stack) {
  return reinterpret_cast<void**>(stack)[1];
}

RONDO_UNWATCHED void* current_record() {
#if defined(__SANITIZE_THREAD__)
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}

RONDO_UNWATCHED void announce_record([[maybe_unused]] void* record) {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(record, 0);
#endif
}

#ifdef RONDO_SIMT_USES_UCONTEXT
RONDO_UNWATCHED void switch_context(void** save, void* load) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t*>(load));
}
void enter_from_ucontext(unsigned high, unsigned low) {
  rondo_simt_enter(reinterpret_cast<void*>(static_cast<uintptr_t>(high) << 32 | low));
}
#else
RONDO_UNWATCHED void switch_context(void** save, void* load) { rondo_simt_switch(save, load); }
#endif

}  // namespace

void Fiber::prepare(FiberHost& host, std::byte* stack, size_t bytes, void (*entry)(void*),
                    void* argument) {
  host_ = &host;
  stack_ = stack;
  bytes_ = bytes;
  entry_ = entry;
  argument_ = argument;
  finished_ = false;
  fake_stack_ = nullptr;
  std::memcpy(stack, &canary, sizeof canary);
#if defined(__SANITIZE_THREAD__)
  if (thread_record(stack) == nullptr) thread_record(stack) = __tsan_create_fiber(0);
#endif
#ifdef RONDO_SIMT_USES_UCONTEXT
  auto* context = ::new (stack + 64) ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack + 64 + sizeof(ucontext_t);
  context->uc_stack.ss_size = bytes - 64 - sizeof(ucontext_t);
  context->uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(context, reinterpret_cast<void (*)()>(&enter_from_ucontext), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  context_ = context;
#else
  // What rondo_simt_switch pops: r15 r14 r13 r12 rbx rbp, then the return address. The stack
  // pointer is a multiple of 16 on arrival in rondo_simt_start, before its call.
  auto* top = reinterpret_cast<void**>(stack + bytes - 64);
  *--top = reinterpret_cast<void*>(&rondo_simt_start);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  top[3] = this;  // r12
  context_ = top;
#endif
}

void Fiber::resume() {
  void* fake_stack = nullptr;
  host_->record = current_record();
  announce_switch(&fake_stack, stack_, bytes_);
  announce_record(thread_record(stack_));
  switch_context(&host_->context, context_);
  announce_arrival(fake_stack, nullptr, nullptr);
}

void Fiber::suspend() {
  announce_switch(&fake_stack_, host_->stack, host_->bytes);
  announce_record(host_->record);
  switch_context(&context_, host_->context);
  arrive();
}

void Fiber::switch_to(Fiber& next) {
  announce_switch(&fake_stack_, next.stack_, next.bytes_);
  announce_record(thread_record(next.stack_));
  switch_context(&context_, next.context_);
  arrive();
}

// The first to arrive comes from the host.
void Fiber::arrive() {
  const bool learn = host_->stack == nullptr;
  announce_arrival(fake_stack_, learn ? &host_->stack : nullptr, learn ? &host_->bytes : nullptr);
}

RONDO_UNWATCHED void Fiber::leave_for_good() {
  finished_ = true;
  announce_switch(nullptr, host_->stack, host_->bytes);  // null: the fake frames are freed
  announce_record(host_->record);
  switch_context(&context_, host_->context);
}

RONDO_UNWATCHED void Fiber::enter(Fiber* fiber) {
  fiber->arrive();
  fiber->entry_(fiber->argument_);
  fiber->leave_for_good();
  __builtin_unreachable();
}

bool Fiber::overflowed() const { return std::memcmp(stack_, &canary, sizeof canary) != 0; }

StackPool::~StackPool() { trim(0); }

std::byte* StackPool::take() {
  if (free_.empty()) {
    constexpr size_t per_slab = 256;
    const size_t bytes = per_slab * stack_bytes_;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RONDO_CHECK(memory != MAP_FAILED, "out of memory: ", bytes, " bytes asked for fiber stacks");
    slabs_.push_back({static_cast<std::byte*>(memory), bytes});
    for (size_t i = per_slab; i-- > 0;) free_.push_back(slabs_.back().memory + i * stack_bytes_);
  }
  std::byte* stack = free_.back();
  free_.pop_back();
  return stack;
}

void StackPool::trim(size_t keep) {
  if (free_.size() <= keep) return;
#if defined(__SANITIZE_THREAD__)
  for (std::byte* stack : free_) {
    if (thread_record(stack)) __tsan_destroy_fiber(thread_record(stack));
  }
#endif
  for (const Slab& s : slabs_) munmap(s.memory, s.bytes);
  slabs_.clear();
  free_.clear();
}

}  // namespace rondo::simt
