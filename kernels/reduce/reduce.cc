#include "kernels/reduce/reduce.h"

#include "kernels/reduce/reduce_impl.h"

namespace rondo {

std::span<const Variant> reduce_rows_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(ReduceRowsArgs, reduce_rows)};
  return variants;
}

std::span<const Variant> sum_squares_variants() {
  static constexpr Variant variants[] = {RONDO_KERNEL_VARIANTS(SumSquaresArgs, sum_squares)};
  return variants;
}

std::span<const Variant> count_nonfinite_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(CountNonfiniteArgs, count_nonfinite)};
  return variants;
}

}  // namespace rondo
