#include "kernels/reduce/reduce.h"

#include "kernels/base/variants.h"
#include "kernels/simt/column_workspace.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

RONDO_DECLARE_KERNEL(ReduceRowsArgs, reduce_rows)
RONDO_DECLARE_KERNEL(SumSquaresArgs, sum_squares)
RONDO_DECLARE_KERNEL(CountNonfiniteArgs, count_nonfinite)
RONDO_DECLARE_GPU(reduce_rows_gpu, ReduceRowsArgs);
RONDO_DECLARE_GPU(sum_squares_gpu, SumSquaresArgs);
RONDO_DECLARE_GPU(count_nonfinite_gpu, CountNonfiniteArgs);

size_t reduce_rows_workspace_bytes(const Context& context, int64_t rows, int64_t cols) {
  return column_sum_workspace_bytes(context, rows, cols, 1);
}

std::span<const Variant> reduce_rows_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(ReduceRowsArgs, reduce_rows),
      RONDO_GPU_VARIANTS(ReduceRowsArgs, reduce_rows_gpu, "portable", Role::standard,
                         takes_narrow<&ReduceRowsArgs::x>)};
  return variants;
}

std::span<const Variant> sum_squares_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(SumSquaresArgs, sum_squares),
      RONDO_GPU_VARIANTS(SumSquaresArgs, sum_squares_gpu, "portable", Role::standard,
                         takes_narrow<&SumSquaresArgs::x>)};
  return variants;
}

std::span<const Variant> count_nonfinite_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(CountNonfiniteArgs, count_nonfinite),
      RONDO_GPU_VARIANTS(CountNonfiniteArgs, count_nonfinite_gpu, "portable", Role::standard,
                         takes_narrow<&CountNonfiniteArgs::x>)};
  return variants;
}

}  // namespace rondo
