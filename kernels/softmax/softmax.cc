#include "kernels/softmax/softmax.h"

#include "kernels/softmax/softmax_impl.h"

namespace rondo {

std::span<const Variant> log_softmax_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(LogSoftmaxArgs, log_softmax)};
  return variants;
}

std::span<const Variant> log_softmax_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LogSoftmaxGradArgs, log_softmax_grad)};
  return variants;
}

}  // namespace rondo
