#include "kernels/pool/pool.h"

#include "kernels/pool/pool_impl.h"

namespace rondo {

std::span<const Variant> pool_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(PoolArgs, pool)};
  return variants;
}

std::span<const Variant> pool_grad_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(PoolGradArgs, pool_grad)};
  return variants;
}

}  // namespace rondo
