#include "kernels/subsample/subsample.h"

#include "kernels/subsample/subsample_impl.h"

namespace rondo {

std::span<const Variant> stack_frames_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(StackFramesArgs, stack_frames)};
  return variants;
}

std::span<const Variant> stack_frames_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(StackFramesGradArgs, stack_frames_grad)};
  return variants;
}

}  // namespace rondo
