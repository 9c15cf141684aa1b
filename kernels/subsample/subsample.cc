#include "kernels/subsample/subsample.h"

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_KERNEL(StackFramesArgs, stack_frames)
RONDO_DECLARE_KERNEL(StackFramesGradArgs, stack_frames_grad)
RONDO_DECLARE_GPU(stack_frames_gpu, StackFramesArgs);
RONDO_DECLARE_GPU(stack_frames_grad_gpu, StackFramesGradArgs);

std::span<const Variant> stack_frames_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(StackFramesArgs, stack_frames),
      RONDO_GPU_VARIANTS(StackFramesArgs, stack_frames_gpu, "portable")};
  return variants;
}

std::span<const Variant> stack_frames_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(StackFramesGradArgs, stack_frames_grad),
      RONDO_GPU_VARIANTS(StackFramesGradArgs, stack_frames_grad_gpu, "portable", Role::standard,
                         takes_narrow<&StackFramesGradArgs::dx>)};
  return variants;
}

}  // namespace rondo
