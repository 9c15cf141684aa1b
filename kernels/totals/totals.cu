// One block: each thread sums every 256th loss, then a tree over the threads.
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

}  // namespace

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
