// The variants of loss_totals, for its table alone.
#pragma once

#include "kernels/simt/gpu_variant.h"
#include "kernels/totals/totals.h"

namespace rondo {

void loss_totals_ref(const Context& context, const LossTotalsArgs& args);
RONDO_DECLARE_GPU(loss_totals_gpu, LossTotalsArgs);

inline bool loss_totals_gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const LossTotalsArgs*>(args)->losses.dtype == DType::f32;
}

}  // namespace rondo
