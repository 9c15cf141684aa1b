// What an op is: an argument struct, and a list of variants that compute it.
//
//   struct PointwiseArgs {
//     static constexpr const char* op = "pointwise";
//     TensorView x, y;
//     ...
//   };
//   std::span<const Variant> pointwise_variants();   // in the op's header
//
// Every op has a `ref` variant: obvious loops, f32/bf16/f64, accumulation in double, never
// optimised; it is the truth the others are compared with (tests/checkop). The order within the
// list is the order of preference: the first default variant of the wanted backend that accepts
// the arguments runs. Named variants run only when asked for.
//
// All pointers in the arguments are to memory of context.device. `ref` and `cpu` run in the
// calling thread (with context.pool beside it) and are complete on return; `sim` and `cuda` are
// enqueued on context.stream. No variant allocates, except `ref`.
#pragma once

#include <span>
#include <string_view>

#include "kernels/base/check.h"
#include "kernels/base/tensor.h"

namespace rondo {

class Device;
class Stream;
class ThreadPool;

enum class Backend : uint8_t { ref, cpu, sim, cuda };
constexpr const char* name_of(Backend b) {
  switch (b) {
    case Backend::ref:
      return "ref";
    case Backend::cpu:
      return "cpu";
    case Backend::sim:
      return "sim";
    case Backend::cuda:
      return "cuda";
  }
  return "?";
}

// Where and with what a kernel runs. Cheap to copy; owns nothing.
struct Context {
  Backend backend = Backend::cpu;
  Device* device = nullptr;
  Stream* stream = nullptr;
  ThreadPool* pool = nullptr;
};

// context.device->fill_bytes on context.stream, for kernels' sources: they do without device.h.
void fill_bytes(const Context& context, void* to, int byte, size_t bytes);

enum class Role : uint8_t {
  standard,  // chosen by default
  named,     // only by name, or where a trial on the device chose it
  peer,      // somebody else's, for comparison and timing only: bench/cases/peers
  timed,     // a peer that computes more coarsely than the contract asks: for timing only
};
constexpr bool is_peer(Role r) { return r == Role::peer || r == Role::timed; }

struct Variant {
  const char* op;
  const char* name;  // unique within (op, backend): "ref", "avx512", "portable", ...
  Backend backend;
  Role role;
  void (*run)(const Context&, const void* args);
  // Whether this machine and these arguments suit the variant; nullptr: always. `args` may be
  // nullptr, which asks about the machine alone.
  bool (*accepts)(const Context&, const void* args) = nullptr;
};

// Erases a typed kernel: variant<LstmForwardArgs, lstm_forward_ref>("ref", Backend::ref).
template <class Args, void (*kernel)(const Context&, const Args&)>
constexpr Variant variant(const char* name, Backend backend, Role role = Role::standard,
                          bool (*accepts)(const Context&, const void*) = nullptr) {
  return {Args::op,
          name,
          backend,
          role,
          [](const Context& context, const void* args) {
            kernel(context, *static_cast<const Args*>(args));
          },
          accepts};
}

}  // namespace rondo
