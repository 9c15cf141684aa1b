// The variants of pointwise, for its table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(PointwiseArgs, pointwise)
RONDO_DECLARE_KERNEL(PointwiseGradArgs, pointwise_grad)
RONDO_DECLARE_GPU(pointwise_gpu, PointwiseArgs);
RONDO_DECLARE_GPU(pointwise_grad_gpu, PointwiseGradArgs);
}  // namespace rondo
