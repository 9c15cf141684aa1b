// What a step needs to know of its losses, found where they are, so that no host waits for them.
//
//   loss_totals  adds a batch to `totals`, and writes what the gradient is to be divided by
//
// losses: [n] f32 (f64 in ref), one per sequence or per row; the first `*row_count` of them when it
//   is given (device memory), else all. +inf is a sequence whose labels do not fit into its frames
//   (infeasible: no gradient, not counted); NaN and -inf are counted as not finite.
// extent: whose sequences and rows are added to the counts.
// inverse_count: f64 or absent; becomes 1 / max(sequences - infeasible, 1) of the totals.
// restart: the totals are what this batch gives, and are not read.
//
//   combine_totals  the sums of several ranks' totals, added in their order
//
// parts: [count], device memory. totals and inverse_count as above; neither overlaps the parts.
// Determinism: bitwise; sums are double, in a fixed order.
#pragma once

#include <cmath>

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

// Device memory.
struct LossTotals {
  double loss = 0;  // sum of the finite ones
  double sequences = 0, frames = 0;
  double infeasible = 0, nonfinite = 0;

  LossTotals& operator+=(const LossTotals& o) {
    loss += o.loss;
    sequences += o.sequences;
    frames += o.frames;
    infeasible += o.infeasible;
    nonfinite += o.nonfinite;
    return *this;
  }
};
// Adds one loss as the op does, in host memory.
inline void count_loss(LossTotals& totals, double loss) {
  if (std::isfinite(loss)) {
    totals.loss += loss;
  } else if (loss > 0) {
    ++totals.infeasible;
  } else {
    ++totals.nonfinite;
  }
}
inline constexpr int loss_totals_doubles = sizeof(LossTotals) / sizeof(double);

struct LossTotalsArgs {
  static constexpr const char* op = "loss_totals";
  TensorView losses;
  const int32_t* row_count = nullptr;
  const PackedExtent* extent = nullptr;
  LossTotals* totals = nullptr;
  double* inverse_count = nullptr;
  bool restart = false;
};

struct CombineTotalsArgs {
  static constexpr const char* op = "combine_totals";
  const LossTotals* parts = nullptr;
  int count = 0;  // at least 1
  LossTotals* totals = nullptr;
  double* inverse_count = nullptr;
};

std::span<const Variant> loss_totals_variants();
std::span<const Variant> combine_totals_variants();

}  // namespace rondo
