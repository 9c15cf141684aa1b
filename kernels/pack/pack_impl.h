// The variants of pack and unpack, for their table alone.
#pragma once

#include "kernels/pack/pack.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
void pack_ref(const Context& context, const PackArgs& args);
void pack_cpu(const Context& context, const PackArgs& args);
void unpack_ref(const Context& context, const UnpackArgs& args);
void unpack_cpu(const Context& context, const UnpackArgs& args);
RONDO_DECLARE_GPU(pack_gpu, PackArgs);
RONDO_DECLARE_GPU(unpack_gpu, UnpackArgs);
}  // namespace rondo
