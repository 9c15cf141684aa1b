// Products of doubles, for gradient checks: simple, and without a library. Threads share the rows
// of c. A row's bits are the same whatever other rows are computed with it.
#include <algorithm>
#include <array>

#include "kernels/base/cpu/parallel.h"
#include "kernels/gemm/gemm_impl.h"

namespace rondo {
namespace {

constexpr int64_t columns = 128;            // of c at a time: their sums stay in the first cache
constexpr int64_t work_per_part = 1 << 16;  // multiply-adds worth waking a thread for

// Columns j to j + n of row i.
void part_of_row(const GemmArgs& g, int64_t k, int64_t i, int64_t j, int64_t n) {
  std::array<double, columns> sums{};
  const auto* a = static_cast<const double*>(g.a);
  const auto* b = static_cast<const double*>(g.b);
  for (int64_t p = 0; p < k; ++p) {
    const double x = g.transpose_a ? a[p * g.lda + i] : a[i * g.lda + p];
    if (g.transpose_b) {
      for (int64_t q = 0; q < n; ++q) sums[static_cast<size_t>(q)] += x * b[(j + q) * g.ldb + p];
    } else {
      const double* row = b + p * g.ldb + j;
      for (int64_t q = 0; q < n; ++q) sums[static_cast<size_t>(q)] += x * row[q];
    }
  }
  double* c = static_cast<double*>(g.c) + i * g.ldc + j;
  const double* bias = g.bias ? g.bias.as<double>() + j : nullptr;
  for (int64_t q = 0; q < n; ++q) {
    double value = static_cast<double>(g.alpha) * sums[static_cast<size_t>(q)];
    if (g.beta != 0) value += static_cast<double>(g.beta) * c[q];
    if (bias) value += bias[q];
    c[q] = value;
  }
}

}  // namespace

bool gemm_f64_accepts(const Context&, const void* args) {
  return !args || static_cast<const GemmArgs*>(args)->dtype == DType::f64;
}

void gemm_f64(const Context& context, const GemmArgs& args) {
  gemm_each(args, [&](const GemmArgs& one) {
    const GemmExtent e = gemm_extent(one);
    const int64_t k = one.alpha == 0 ? 0 : e.k;
    const int64_t grain = work_per_part / std::max<int64_t>(e.n * k, 1) + 1;
    context.pool->for_range(e.m, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < e.n; j += columns) {
          part_of_row(one, k, i, j, std::min(columns, e.n - j));
        }
      }
    });
  });
}

}  // namespace rondo
