// The variants of the reductions, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
RONDO_DECLARE_KERNEL(ReduceRowsArgs, reduce_rows)
RONDO_DECLARE_KERNEL(SumSquaresArgs, sum_squares)
RONDO_DECLARE_KERNEL(CountNonfiniteArgs, count_nonfinite)
}  // namespace rondo
