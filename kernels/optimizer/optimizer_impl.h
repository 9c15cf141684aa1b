// The variants of the optimiser ops, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
void optimizer_prepare_ref(const Context& context, const OptimizerPrepareArgs& args);
RONDO_DECLARE_KERNEL(SgdArgs, sgd)
RONDO_DECLARE_KERNEL(AdamArgs, adam)
RONDO_DECLARE_KERNEL(EmaArgs, ema)
RONDO_DECLARE_GPU(optimizer_prepare_gpu, OptimizerPrepareArgs);
RONDO_DECLARE_GPU(sgd_gpu, SgdArgs);
RONDO_DECLARE_GPU(adam_gpu, AdamArgs);
RONDO_DECLARE_GPU(ema_gpu, EmaArgs);
}  // namespace rondo
