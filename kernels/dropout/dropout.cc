#include "kernels/dropout/dropout.h"

#include "kernels/dropout/dropout_impl.h"

namespace rondo {

std::span<const Variant> dropout_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(DropoutArgs, dropout),
      RONDO_GPU_VARIANTS(DropoutArgs, dropout_gpu, "portable", Role::standard,
                         takes_narrow<&DropoutArgs::x>)};
  return variants;
}

}  // namespace rondo
