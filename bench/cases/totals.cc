#include "kernels/totals/totals.h"

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Shape {
  int32_t sequences;
  bool per_row = false;  // a loss for each row instead of each sequence
  bool bad = false;      // some are infinite or not a number
  bool restart = false;
  bool count = true;
  DType dtype = DType::f32;
};

void losses_case(Case& c, LossTotalsArgs& a, const Shape& s) {
  std::vector<int32_t> lengths;
  for (int32_t n = 0; n < s.sequences; ++n)
    lengths.push_back(1 + static_cast<int32_t>(c.random(9)));
  const PackedView layout = c.packed(lengths, 3, 2);
  const int64_t live = s.per_row ? c.extent_rows(layout) : s.sequences;
  const int64_t capacity = s.per_row ? layout.capacity.rows : layout.capacity.sequences;
  std::vector<double> losses(static_cast<size_t>(capacity), nan);
  for (int64_t i = 0; i < live; ++i) {
    double& loss = losses[static_cast<size_t>(i)];
    loss = c.random_real(0, 50);
    if (!s.bad) continue;
    const int64_t kind = c.random(8);
    if (kind == 0) loss = infinity;
    if (kind == 1) loss = nan;
    if (kind == 2) loss = -infinity;
  }
  a.losses = c.input_values({capacity}, s.dtype, losses);
  a.row_count = s.per_row ? &layout.extent->rows : &layout.extent->sequences;
  a.extent = layout.extent;
  a.restart = s.restart;
  // One double per sum, each of `live` roundings of sums up to 50 x live.
  const double n = static_cast<double>(live + 1);
  const Tolerance t = Tolerance::ulps(DType::f64, n, 50 * n);
  const std::vector<double> before = {31.5, 7, 70, 2, 1};
  a.totals = reinterpret_cast<LossTotals*>(
      (s.restart ? c.output("totals", {loss_totals_doubles}, DType::f64, t)
                 : c.in_out_values("totals", {loss_totals_doubles}, DType::f64, t, before))
          .data);
  if (s.count) {
    a.inverse_count = c.output("inverse_count", {1}, DType::f64, Tolerance::exact()).as<double>();
  }
  c.work(0, static_cast<double>(live) * static_cast<double>(size_of(s.dtype)) +
                loss_totals_doubles * (s.restart ? 8.0 : 16.0));
}

void ranks_case(Case& c, CombineTotalsArgs& a, int count, bool wants_count) {
  std::vector<double> parts;
  for (int i = 0; i < count; ++i) {
    const auto sequences = static_cast<double>(c.random(40));
    parts.insert(parts.end(), {c.random_real(0, 5000), sequences, 50 * sequences,
                               sequences - static_cast<double>(c.random(9)), 1});
  }
  a.parts = reinterpret_cast<const LossTotals*>(
      c.input_values({static_cast<int64_t>(parts.size())}, DType::f64, parts).data);
  a.count = count;
  a.totals = reinterpret_cast<LossTotals*>(
      c.output("totals", {loss_totals_doubles}, DType::f64, Tolerance::exact()).data);
  if (wants_count) {
    a.inverse_count = c.output("inverse_count", {1}, DType::f64, Tolerance::exact()).as<double>();
  }
  c.work(0, static_cast<double>(count + 1) * sizeof(LossTotals));
}

}  // namespace

void totals_cases(Suite& suite) {
  for (const auto& [count, wants_count] : every({1, 2, 3, 8, 33}, {false, true}))
    suite.add(str("f64/", count, wants_count ? "/count" : ""), ranks_case, count, wants_count);
  for (const auto& [n, bits] : every({0, 1, 7, 31, 32, 33, 255, 256, 257, 600},
                                     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})) {
    const Shape s = {n,
                     (bits & 1) != 0,
                     (bits & 2) != 0,
                     (bits & 4) != 0,
                     (bits & 8) != 0,
                     n == 33 ? DType::f64 : DType::f32};
    suite.add(str(name_of(s.dtype), "/", n, s.per_row ? "/rows" : "", s.bad ? "/bad" : "",
                  s.restart ? "/restart" : "", s.count ? "/count" : ""),
              losses_case, s);
  }
  suite.add_bench("bench/f64/8/count", ranks_case, 8, true);
  suite.add_bench("bench/f32/600", losses_case, {600});
}

}  // namespace rondo::check
