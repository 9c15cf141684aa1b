#include "kernels/pointwise/pointwise.h"

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_KERNEL(PointwiseArgs, pointwise)
RONDO_DECLARE_KERNEL(PointwiseGradArgs, pointwise_grad)
RONDO_DECLARE_GPU(pointwise_gpu, PointwiseArgs);
RONDO_DECLARE_GPU(pointwise_grad_gpu, PointwiseGradArgs);

std::span<const Variant> pointwise_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(PointwiseArgs, pointwise),
      RONDO_GPU_VARIANTS(PointwiseArgs, pointwise_gpu, "portable", Role::standard,
                         takes_narrow<&PointwiseArgs::x>)};
  return variants;
}

std::span<const Variant> pointwise_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(PointwiseGradArgs, pointwise_grad),
      RONDO_GPU_VARIANTS(PointwiseGradArgs, pointwise_grad_gpu, "portable", Role::standard,
                         takes_narrow<&PointwiseGradArgs::dy>)};
  return variants;
}

}  // namespace rondo
