// The variants of the copies, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/cast/cast.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(CastArgs, cast)
RONDO_DECLARE_KERNEL(FillArgs, fill)
RONDO_DECLARE_KERNEL(ScaleArgs, scale)
RONDO_DECLARE_KERNEL(AccumulateArgs, accumulate)
RONDO_DECLARE_GPU(cast_gpu, CastArgs);
RONDO_DECLARE_GPU(fill_gpu, FillArgs);
RONDO_DECLARE_GPU(scale_gpu, ScaleArgs);
RONDO_DECLARE_GPU(accumulate_gpu, AccumulateArgs);

[[gnu::always_inline]] inline int64_t covered_elements(const TensorView& view,
                                                       const int32_t* row_count) {
  if (row_count == nullptr) return view.numel();
  return *row_count * (view.rank == 2 ? view.dim(1) : 1);
}
}  // namespace rondo
