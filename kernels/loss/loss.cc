#include "kernels/loss/loss.h"

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_KERNEL(CrossEntropyArgs, cross_entropy)
RONDO_DECLARE_KERNEL(MseArgs, mse)
RONDO_DECLARE_GPU(cross_entropy_gpu, CrossEntropyArgs);
RONDO_DECLARE_GPU(mse_gpu, MseArgs);

void validate_targets(std::span<const int32_t> targets, int64_t classes, std::string_view what) {
  for (size_t i = 0; i < targets.size(); ++i) {
    const int32_t t = targets[i];
    if (t == ignored_target || (t >= 0 && t < classes)) continue;
    fail_input(what, ": target ", i, " is ", t, ", expected 0 to ", classes - 1, " or ",
               ignored_target, " (ignored)");
  }
}

std::span<const Variant> cross_entropy_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(CrossEntropyArgs, cross_entropy),
      RONDO_GPU_VARIANTS(CrossEntropyArgs, cross_entropy_gpu, "portable", Role::standard,
                         takes_narrow<&CrossEntropyArgs::logits>)};
  return variants;
}

std::span<const Variant> mse_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(MseArgs, mse),
      RONDO_GPU_VARIANTS(MseArgs, mse_gpu, "portable", Role::standard,
                         takes_narrow<&MseArgs::pred>)};
  return variants;
}

}  // namespace rondo
