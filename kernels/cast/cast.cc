#include "kernels/cast/cast.h"

#include "kernels/cast/cast_impl.h"

namespace rondo {

std::span<const Variant> cast_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(CastArgs, cast),
                                         RONDO_GPU_VARIANTS(CastArgs, cast_gpu, "portable")};
  return variants;
}

std::span<const Variant> fill_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(FillArgs, fill),
                                         RONDO_GPU_VARIANTS(FillArgs, fill_gpu, "portable")};
  return variants;
}

std::span<const Variant> scale_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(ScaleArgs, scale),
      RONDO_GPU_VARIANTS(ScaleArgs, scale_gpu, "portable", Role::standard,
                         takes_narrow<&ScaleArgs::x>)};
  return variants;
}

std::span<const Variant> accumulate_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(AccumulateArgs, accumulate),
      RONDO_GPU_VARIANTS(AccumulateArgs, accumulate_gpu, "portable", Role::standard,
                         takes_narrow<&AccumulateArgs::x>)};
  return variants;
}

}  // namespace rondo
