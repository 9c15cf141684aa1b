#include <cmath>

#include "bench/cases/check/check.h"
#include "kernels/totals/totals.h"

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

void run_shape(Case& c, const Shape& s) {
  std::vector<int32_t> lengths;
  for (int32_t n = 0; n < s.sequences; ++n)
    lengths.push_back(1 + static_cast<int32_t>(c.random(9)));
  const PackedView layout = c.packed(lengths, 3, 2);
  const int64_t live = s.per_row ? c.extent_rows(layout) : s.sequences;
  const int64_t capacity = s.per_row ? layout.capacity.rows : layout.capacity.sequences;
  std::vector<double> losses(static_cast<size_t>(capacity), std::nan(""));
  for (int64_t i = 0; i < live; ++i) {
    double& loss = losses[static_cast<size_t>(i)];
    loss = c.random_real(0, 50);
    if (!s.bad) continue;
    const int64_t kind = c.random(8);
    if (kind == 0) loss = INFINITY;
    if (kind == 1) loss = NAN;
    if (kind == 2) loss = -INFINITY;
  }
  LossTotalsArgs a;
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
  c.run(a);
}

void run_ranks(Case& c, int count, bool wants_count) {
  std::vector<double> parts;
  for (int i = 0; i < count; ++i) {
    const auto sequences = static_cast<double>(c.random(40));
    parts.insert(parts.end(), {c.random_real(0, 5000), sequences, 50 * sequences,
                               sequences - static_cast<double>(c.random(9)), 1});
  }
  CombineTotalsArgs a;
  a.parts = reinterpret_cast<const LossTotals*>(
      c.input_values({static_cast<int64_t>(parts.size())}, DType::f64, parts).data);
  a.count = count;
  a.totals = reinterpret_cast<LossTotals*>(
      c.output("totals", {loss_totals_doubles}, DType::f64, Tolerance::exact()).data);
  if (wants_count) {
    a.inverse_count = c.output("inverse_count", {1}, DType::f64, Tolerance::exact()).as<double>();
  }
  c.work(0, static_cast<double>(count + 1) * sizeof(LossTotals));
  c.run(a);
}

}  // namespace

void totals_cases(Suite& suite) {
  for (int count : {1, 2, 3, 8, 33}) {
    for (bool wants_count : {false, true}) {
      suite.add<CombineTotalsArgs>(str("f64/", count, wants_count ? "/count" : ""),
                                   [=](Case& c) { run_ranks(c, count, wants_count); });
    }
  }
  for (int32_t n : {0, 1, 7, 31, 32, 33, 255, 256, 257, 600}) {
    for (int bits = 0; bits < 16; ++bits) {
      Shape s{n};
      s.per_row = bits & 1, s.bad = bits & 2, s.restart = bits & 4, s.count = bits & 8;
      s.dtype = n == 33 ? DType::f64 : DType::f32;
      suite.add<LossTotalsArgs>(
          str(name_of(s.dtype), "/", n, s.per_row ? "/rows" : "", s.bad ? "/bad" : "",
              s.restart ? "/restart" : "", s.count ? "/count" : ""),
          [=](Case& c) { run_shape(c, s); });
    }
  }
  suite.add_bench<CombineTotalsArgs>("bench/f64/8/count", [](Case& c) { run_ranks(c, 8, true); });
  suite.add_bench<LossTotalsArgs>("bench/f32/600", [](Case& c) { run_shape(c, {600}); });
}

}  // namespace rondo::check
