#include "kernels/pack/pack.h"

#include "kernels/simt/gpu_variant.h"

namespace rondo {

void pack_ref(const Context& context, const PackArgs& args);
void pack_cpu(const Context& context, const PackArgs& args);
void unpack_ref(const Context& context, const UnpackArgs& args);
void unpack_cpu(const Context& context, const UnpackArgs& args);
RONDO_DECLARE_GPU(pack_gpu, PackArgs);
RONDO_DECLARE_GPU(unpack_gpu, UnpackArgs);

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
