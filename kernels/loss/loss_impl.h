// The variants of the losses, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/loss/loss.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(CrossEntropyArgs, cross_entropy)
RONDO_DECLARE_KERNEL(MseArgs, mse)
RONDO_DECLARE_GPU(cross_entropy_gpu, CrossEntropyArgs);
RONDO_DECLARE_GPU(mse_gpu, MseArgs);
}  // namespace rondo
