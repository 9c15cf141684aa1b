// The variants of the optimiser ops, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/optimizer/optimizer.h"

namespace rondo {
void optimizer_prepare_ref(const Context& context, const OptimizerPrepareArgs& args);
RONDO_DECLARE_KERNEL(SgdArgs, sgd)
RONDO_DECLARE_KERNEL(AdamArgs, adam)
RONDO_DECLARE_KERNEL(EmaArgs, ema)
}  // namespace rondo
