#include "kernels/pack/pack.h"

#include "kernels/pack/pack_impl.h"

namespace rondo {

std::span<const Variant> pack_variants() {
  static constexpr Variant variants[] = {
      variant<PackArgs, pack_ref>("ref", Backend::ref),
      variant<PackArgs, pack_cpu>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(PackArgs, pack_gpu, "portable"),
  };
  return variants;
}

std::span<const Variant> unpack_variants() {
  static constexpr Variant variants[] = {
      variant<UnpackArgs, unpack_ref>("ref", Backend::ref),
      variant<UnpackArgs, unpack_cpu>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(UnpackArgs, unpack_gpu, "portable"),
  };
  return variants;
}

}  // namespace rondo
