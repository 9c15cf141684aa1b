// The variants of the losses, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/loss/loss.h"

namespace rondo {
RONDO_DECLARE_KERNEL(CrossEntropyArgs, cross_entropy)
RONDO_DECLARE_KERNEL(MseArgs, mse)
}  // namespace rondo
