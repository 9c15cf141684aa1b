// The variants of the softmax ops, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"
#include "kernels/softmax/softmax.h"

namespace rondo {
RONDO_DECLARE_KERNEL(LogSoftmaxArgs, log_softmax)
RONDO_DECLARE_KERNEL(LogSoftmaxGradArgs, log_softmax_grad)
RONDO_DECLARE_GPU(log_softmax_gpu, LogSoftmaxArgs);
RONDO_DECLARE_GPU(log_softmax_grad_gpu, LogSoftmaxGradArgs);
}  // namespace rondo
