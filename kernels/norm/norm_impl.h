// The variants of the normalisations, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/norm/norm.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(LayerNormArgs, layer_norm)
RONDO_DECLARE_KERNEL(LayerNormGradArgs, layer_norm_grad)
RONDO_DECLARE_GPU(layer_norm_gpu, LayerNormArgs);
RONDO_DECLARE_GPU(layer_norm_grad_gpu, LayerNormGradArgs);
}  // namespace rondo
