// The variants of the reductions, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(ReduceRowsArgs, reduce_rows)
RONDO_DECLARE_KERNEL(SumSquaresArgs, sum_squares)
RONDO_DECLARE_KERNEL(CountNonfiniteArgs, count_nonfinite)
RONDO_DECLARE_GPU(reduce_rows_gpu, ReduceRowsArgs);
RONDO_DECLARE_GPU(sum_squares_gpu, SumSquaresArgs);
RONDO_DECLARE_GPU(count_nonfinite_gpu, CountNonfiniteArgs);
}  // namespace rondo
