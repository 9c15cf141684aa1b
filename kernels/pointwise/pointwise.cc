#include "kernels/pointwise/pointwise.h"

#include "kernels/base/cpu.h"
#include "kernels/pointwise/pointwise_impl.h"

namespace rondo {

std::span<const Variant> pointwise_variants() {
  static constexpr Variant variants[] = {
      variant<PointwiseArgs, pointwise_ref>("ref", Backend::ref),
      variant<PointwiseArgs, isa_avx512::pointwise_cpu>("avx512", Backend::cpu, Role::standard,
                                                        has_avx512),
      variant<PointwiseArgs, isa_avx2::pointwise_cpu>("avx2", Backend::cpu, Role::standard,
                                                      has_avx2),
      variant<PointwiseArgs, isa_generic::pointwise_cpu>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(PointwiseArgs, pointwise_gpu, "portable", Role::standard,
                         pointwise_gpu_accepts),
  };
  return variants;
}

std::span<const Variant> pointwise_grad_variants() {
  static constexpr Variant variants[] = {
      variant<PointwiseGradArgs, pointwise_grad_ref>("ref", Backend::ref),
      variant<PointwiseGradArgs, isa_avx512::pointwise_grad_cpu>("avx512", Backend::cpu,
                                                                 Role::standard, has_avx512),
      variant<PointwiseGradArgs, isa_avx2::pointwise_grad_cpu>("avx2", Backend::cpu,
                                                               Role::standard, has_avx2),
      variant<PointwiseGradArgs, isa_generic::pointwise_grad_cpu>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(PointwiseGradArgs, pointwise_grad_gpu, "portable", Role::standard,
                         pointwise_grad_gpu_accepts),
  };
  return variants;
}

}  // namespace rondo
