// Declares and registers a kernel that exists twice, as simulated and as GPU code.
//
//   RONDO_DECLARE_GPU(pointwise_gpu, PointwiseArgs);              // in <op>_impl.h
//   RONDO_GPU_VARIANTS(PointwiseArgs, pointwise_gpu, "portable")  // in the table; Role and
//                                                                 // `accepts` may follow
// Builds without CUDA (no RONDO_WITH_CUDA) have the simulated one alone. In builds without the
// simulator (no RONDO_WITH_SIM) its row stays, so that tables are the same everywhere, and takes
// nothing.
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/op.h"

#define RONDO_DECLARE_GPU(function, Args)              \
  namespace sim {                                      \
  void function(const ::rondo::Context&, const Args&); \
  }                                                    \
  namespace cuda {                                     \
  void function(const ::rondo::Context&, const Args&); \
  }                                                    \
  static_assert(true)

#define RONDO_CUDA_VARIANT(Args, function, ...) \
  ::rondo::detail::gpu_variant<Args, cuda::function>(Backend::cuda, __VA_ARGS__)
#ifdef RONDO_WITH_SIM
#define RONDO_SIM_VARIANT(Args, function, ...) \
  ::rondo::detail::gpu_variant<Args, sim::function>(Backend::sim, __VA_ARGS__)
#else
#define RONDO_SIM_VARIANT(Args, function, name, ...) ::rondo::detail::absent_variant<Args>(name)
#endif

#ifdef RONDO_WITH_CUDA
#define RONDO_GPU_VARIANTS(Args, function, ...) \
  RONDO_SIM_VARIANT(Args, function, __VA_ARGS__), RONDO_CUDA_VARIANT(Args, function, __VA_ARGS__)
#else
#define RONDO_GPU_VARIANTS(Args, function, ...) RONDO_SIM_VARIANT(Args, function, __VA_ARGS__)
#endif

namespace rondo::detail {

template <class Args, void (*kernel)(const Context&, const Args&)>
constexpr Variant gpu_variant(Backend backend, const char* name, Role role = Role::standard,
                              bool (*accepts)(const Context&, const void*) = nullptr) {
  return variant<Args, kernel>(name, backend, role, accepts);
}

template <class Args>
void run_absent(const Context&, const Args&) {
  fail_input("this program was built without the simulator (meson setup -Dsim=true)");
}
inline bool takes_nothing(const Context&, const void*) { return false; }
template <class Args>
constexpr Variant absent_variant(const char* name) {
  return variant<Args, run_absent<Args>>(name, Backend::sim, Role::named, takes_nothing);
}

template <auto view>
struct OfMember;
template <class Args, TensorView Args::*view>
struct OfMember<view> {
  static bool narrow(const void* args) {
    const DType dtype = (static_cast<const Args*>(args)->*view).dtype;
    return dtype == DType::f32 || dtype == DType::bf16;
  }
};

}  // namespace rondo::detail

namespace rondo {

// `accepts` of kernels for f32 and bf16: takes_narrow<&PoolArgs::x>. (f64 is there for references.)
template <auto view>
bool takes_narrow(const Context&, const void* args) {
  return !args || detail::OfMember<view>::narrow(args);
}

}  // namespace rondo
