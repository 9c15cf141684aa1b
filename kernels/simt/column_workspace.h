// How much scratch memory kernels/simt/column_sums.h wants. Host code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/op.h"

namespace rondo {

inline constexpr int64_t column_sum_round = 512;  // rows one block adds up at a time

// For K sums of columns over at most `rows` rows: one partial sum per round, unless there is but
// one round. Nothing for backends that sum on the host.
inline size_t column_sum_workspace_bytes(const Context& context, int64_t rows, int64_t cols,
                                         int64_t K) {
  if (context.backend == Backend::ref || context.backend == Backend::cpu) return 0;
  if (rows <= column_sum_round) return 0;
  const int64_t rounds = (rows + column_sum_round - 1) / column_sum_round;
  return static_cast<size_t>(rounds * K * cols) * sizeof(double);
}

}  // namespace rondo
