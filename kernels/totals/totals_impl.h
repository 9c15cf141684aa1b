// The variants of these ops, for their tables alone.
#pragma once

#include "kernels/simt/gpu_variant.h"
#include "kernels/totals/totals.h"

namespace rondo {

void loss_totals_ref(const Context& context, const LossTotalsArgs& args);
RONDO_DECLARE_GPU(loss_totals_gpu, LossTotalsArgs);
void combine_totals_ref(const Context& context, const CombineTotalsArgs& args);
RONDO_DECLARE_GPU(combine_totals_gpu, CombineTotalsArgs);

inline bool loss_totals_gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const LossTotalsArgs*>(args)->losses.dtype == DType::f32;
}

}  // namespace rondo
