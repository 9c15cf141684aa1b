#include "kernels/norm/norm.h"

#include "kernels/norm/norm_impl.h"

namespace rondo {

std::span<const Variant> layer_norm_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(LayerNormArgs, layer_norm)};
  return variants;
}

std::span<const Variant> layer_norm_grad_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(LayerNormGradArgs, layer_norm_grad)};
  return variants;
}

}  // namespace rondo
