#include "kernels/pool/pool.h"

#include "kernels/pool/pool_impl.h"

namespace rondo {

std::span<const Variant> pool_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(PoolArgs, pool),
      RONDO_GPU_VARIANTS(PoolArgs, pool_gpu, "portable", Role::standard,
                         takes_narrow<&PoolArgs::x>)};
  return variants;
}

std::span<const Variant> pool_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(PoolGradArgs, pool_grad),
      RONDO_GPU_VARIANTS(PoolGradArgs, pool_grad_gpu, "portable", Role::standard,
                         takes_narrow<&PoolGradArgs::dx>)};
  return variants;
}

}  // namespace rondo
