#include "kernels/norm/norm.h"

#include "kernels/base/variants.h"
#include "kernels/simt/column_workspace.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_KERNEL(LayerNormArgs, layer_norm)
RONDO_DECLARE_KERNEL(LayerNormGradArgs, layer_norm_grad)
RONDO_DECLARE_GPU(layer_norm_gpu, LayerNormArgs);
RONDO_DECLARE_GPU(layer_norm_grad_gpu, LayerNormGradArgs);

size_t layer_norm_grad_workspace_bytes(const Context& context, int64_t rows, int64_t cols) {
  return column_sum_workspace_bytes(context, rows, cols, 2);
}

std::span<const Variant> layer_norm_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LayerNormArgs, layer_norm),
      RONDO_GPU_VARIANTS(LayerNormArgs, layer_norm_gpu, "portable", Role::standard,
                         takes_narrow<&LayerNormArgs::x>)};
  return variants;
}

std::span<const Variant> layer_norm_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(LayerNormGradArgs, layer_norm_grad),
      RONDO_GPU_VARIANTS(LayerNormGradArgs, layer_norm_grad_gpu, "portable", Role::standard,
                         takes_narrow<&LayerNormGradArgs::x>)};
  return variants;
}

}  // namespace rondo
