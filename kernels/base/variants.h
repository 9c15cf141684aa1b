// What the small ops' variant tables have in common: one reference, one CPU kernel per
// instruction set.
//
//   RONDO_DECLARE_KERNEL(CastArgs, cast)        declares cast_ref and <isa>::cast_cpu
//   RONDO_KERNEL_VARIANTS(CastArgs, cast)       their rows of the table
#pragma once

#include "kernels/base/cpu.h"
#include "kernels/base/op.h"

#define RONDO_DECLARE_KERNEL(Args, kernel)                     \
  void kernel##_ref(const Context& context, const Args& args); \
  namespace isa_generic {                                      \
  void kernel##_cpu(const Context& context, const Args& args); \
  }                                                            \
  namespace isa_avx2 {                                         \
  void kernel##_cpu(const Context& context, const Args& args); \
  }                                                            \
  namespace isa_avx512 {                                       \
  void kernel##_cpu(const Context& context, const Args& args); \
  }

#define RONDO_KERNEL_VARIANTS(Args, kernel)                                                        \
  variant<Args, kernel##_ref>("ref", Backend::ref),                                                \
      variant<Args, isa_avx512::kernel##_cpu>("avx512", Backend::cpu, Role::standard, has_avx512), \
      variant<Args, isa_avx2::kernel##_cpu>("avx2", Backend::cpu, Role::standard, has_avx2),       \
      variant<Args, isa_generic::kernel##_cpu>("generic", Backend::cpu)

namespace rondo {

// Rows a call covers: all of the view's, or what `row_count` says.
[[gnu::always_inline]] inline int64_t covered_rows(const TensorView& view,
                                                   const int32_t* row_count) {
  return row_count ? *row_count : view.dim(0);
}

}  // namespace rondo
