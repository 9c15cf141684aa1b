// loss_totals, one block: each thread sums every 256th loss, then a tree over the threads.
// combine_totals: a thread for each of the five sums.
#include "kernels/simt/simt.h"
#include "kernels/totals/totals_impl.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int threads = 256;

struct TotalsShared {
  double loss[threads];
  int infeasible[threads], nonfinite[threads];
};

__global__ void totals_kernel(const float* losses, int64_t capacity, const int32_t* row_count,
                              const PackedExtent* extent, LossTotals* totals, double* inverse_count,
                              bool restart) {
  auto& s = shared<TotalsShared>();
  const int self = static_cast<int>(threadIdx.x);
  const int64_t n = row_count ? *row_count : capacity;
  double loss = 0;
  int infeasible = 0, nonfinite = 0;
  for (int64_t i = self; i < n; i += threads) {
    const float x = losses[i];
    if (fabsf(x) < INFINITY) {
      loss += static_cast<double>(x);
    } else if (x > 0) {
      ++infeasible;
    } else {
      ++nonfinite;
    }
  }
  s.loss[self] = loss, s.infeasible[self] = infeasible, s.nonfinite[self] = nonfinite;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (self < half) {
      s.loss[self] += s.loss[self + half];
      s.infeasible[self] += s.infeasible[self + half];
      s.nonfinite[self] += s.nonfinite[self + half];
    }
    __syncthreads();
  }
  if (self != 0) return;
  LossTotals t;
  t.loss = t.sequences = t.frames = t.infeasible = t.nonfinite = 0;
  if (!restart) t = *totals;
  t.loss += s.loss[0];
  t.infeasible += s.infeasible[0];
  t.nonfinite += s.nonfinite[0];
  t.sequences += extent->sequences;
  t.frames += extent->rows;
  *totals = t;
  if (inverse_count) {
    const double counted = t.sequences - t.infeasible;
    *inverse_count = 1 / (counted > 1 ? counted : 1.0);
  }
}

__global__ void combine_kernel(const LossTotals* parts, int count, LossTotals* totals,
                               double* inverse_count) {
  const int self = static_cast<int>(threadIdx.x);
  if (self < loss_totals_doubles) {
    const double* from = reinterpret_cast<const double*>(parts) + self;
    double sum = *from;
    for (int i = 1; i < count; ++i) sum += from[i * loss_totals_doubles];
    reinterpret_cast<double*>(totals)[self] = sum;
  }
  __syncthreads();
  if (self != 0 || !inverse_count) return;
  const double counted = totals->sequences - totals->infeasible;
  *inverse_count = 1 / (counted > 1 ? counted : 1.0);
}

}  // namespace

void combine_totals_gpu(const Context& context, const CombineTotalsArgs& a) {
  launch(context, {.kernel = "combine_totals", .grid = {1}, .block = {32}}, combine_kernel, a.parts,
         a.count, a.totals, a.inverse_count);
}

void loss_totals_gpu(const Context& context, const LossTotalsArgs& a) {
  launch(context,
         {.kernel = "loss_totals",
          .grid = {1},
          .block = {threads},
          .shared_bytes = sizeof(TotalsShared)},
         totals_kernel, a.losses.as<float>(), a.losses.numel(), a.row_count, a.extent, a.totals,
         a.inverse_count, a.restart);
}

}  // namespace rondo::RONDO_GPU
