#include "kernels/softmax/softmax.h"

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_KERNEL(LogSoftmaxArgs, log_softmax)
RONDO_DECLARE_KERNEL(LogSoftmaxGradArgs, log_softmax_grad)
RONDO_DECLARE_GPU(log_softmax_gpu, LogSoftmaxArgs);
RONDO_DECLARE_GPU(log_softmax_grad_gpu, LogSoftmaxGradArgs);

std::span<const Variant> log_softmax_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LogSoftmaxArgs, log_softmax),
      RONDO_GPU_VARIANTS(LogSoftmaxArgs, log_softmax_gpu, "portable", Role::standard,
                         takes_narrow<&LogSoftmaxArgs::x>)};
  return variants;
}

std::span<const Variant> log_softmax_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LogSoftmaxGradArgs, log_softmax_grad),
      RONDO_GPU_VARIANTS(LogSoftmaxGradArgs, log_softmax_grad_gpu, "portable", Role::standard,
                         takes_narrow<&LogSoftmaxGradArgs::dy>)};
  return variants;
}

}  // namespace rondo
