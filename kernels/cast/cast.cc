#include "kernels/cast/cast.h"

#include "kernels/cast/cast_impl.h"

namespace rondo {

std::span<const Variant> cast_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(CastArgs, cast)};
  return variants;
}

std::span<const Variant> fill_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(FillArgs, fill)};
  return variants;
}

std::span<const Variant> scale_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(ScaleArgs, scale)};
  return variants;
}

std::span<const Variant> accumulate_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(AccumulateArgs, accumulate)};
  return variants;
}

}  // namespace rondo
