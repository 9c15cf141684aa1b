#include "kernels/pointwise/pointwise.h"

#include "kernels/pointwise/pointwise_impl.h"

namespace rondo {

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
