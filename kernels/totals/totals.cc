#include "kernels/totals/totals.h"

#include <algorithm>
#include <cmath>

#include "kernels/totals/totals_impl.h"

namespace rondo {
namespace {

template <class T>
void add(const LossTotalsArgs& a, LossTotals& t) {
  const int64_t n = a.row_count ? *a.row_count : a.losses.numel();
  for (int64_t i = 0; i < n; ++i) {
    const auto loss = static_cast<double>(a.losses.as<T>()[i]);
    if (std::isfinite(loss)) {
      t.loss += loss;
    } else if (loss > 0) {
      t.infeasible += 1;
    } else {
      t.nonfinite += 1;
    }
  }
}

}  // namespace

void loss_totals_ref(const Context&, const LossTotalsArgs& a) {
  LossTotals t = a.restart ? LossTotals{} : *a.totals;
  if (a.losses.dtype == DType::f64) {
    add<double>(a, t);
  } else {
    add<float>(a, t);
  }
  t.sequences += a.extent->sequences;
  t.frames += a.extent->rows;
  *a.totals = t;
  if (a.inverse_count) *a.inverse_count = 1 / std::max(t.sequences - t.infeasible, 1.0);
}

void combine_totals_ref(const Context&, const CombineTotalsArgs& a) {
  LossTotals t = a.parts[0];
  for (int i = 1; i < a.count; ++i) {
    t.loss += a.parts[i].loss;
    t.sequences += a.parts[i].sequences;
    t.frames += a.parts[i].frames;
    t.infeasible += a.parts[i].infeasible;
    t.nonfinite += a.parts[i].nonfinite;
  }
  *a.totals = t;
  if (a.inverse_count) *a.inverse_count = 1 / std::max(t.sequences - t.infeasible, 1.0);
}

std::span<const Variant> combine_totals_variants() {
  static constexpr Variant variants[] = {
      variant<CombineTotalsArgs, combine_totals_ref>("ref", Backend::ref),
      // Five numbers of a few ranks.
      variant<CombineTotalsArgs, combine_totals_ref>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(CombineTotalsArgs, combine_totals_gpu, "portable", Role::standard,
                         nullptr),
  };
  return variants;
}

std::span<const Variant> loss_totals_variants() {
  static constexpr Variant variants[] = {
      variant<LossTotalsArgs, loss_totals_ref>("ref", Backend::ref),
      // A few hundred numbers: there is nothing to make faster.
      variant<LossTotalsArgs, loss_totals_ref>("generic", Backend::cpu),
      RONDO_GPU_VARIANTS(LossTotalsArgs, loss_totals_gpu, "portable", Role::standard,
                         loss_totals_gpu_accepts),
  };
  return variants;
}

}  // namespace rondo
