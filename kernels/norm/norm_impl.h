// The variants of the normalisations, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/norm/norm.h"

namespace rondo {
RONDO_DECLARE_KERNEL(LayerNormArgs, layer_norm)
RONDO_DECLARE_KERNEL(LayerNormGradArgs, layer_norm_grad)
}  // namespace rondo
