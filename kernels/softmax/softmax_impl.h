// The variants of the softmax ops, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/softmax/softmax.h"

namespace rondo {
RONDO_DECLARE_KERNEL(LogSoftmaxArgs, log_softmax)
RONDO_DECLARE_KERNEL(LogSoftmaxGradArgs, log_softmax_grad)
}  // namespace rondo
