#include "kernels/dropout/dropout.h"

#include "kernels/dropout/dropout_impl.h"

namespace rondo {

void check_dropout(const DropoutArgs& a) {
  RONDO_CHECK(a.p >= 0 && a.p < 1, "dropout probability is ", a.p, ", expected [0, 1)");
  RONDO_CHECK(a.channels >= 0 && (a.channels == 0 || a.x.dim(1) % a.channels == 0), "dropout over ",
              a.channels, " channels of frames of ", a.x.dim(1));
}

std::span<const Variant> dropout_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(DropoutArgs, dropout),
      RONDO_GPU_VARIANTS(DropoutArgs, dropout_gpu, "portable", Role::standard,
                         takes_narrow<&DropoutArgs::x>)};
  return variants;
}

}  // namespace rondo
