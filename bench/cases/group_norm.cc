#include "kernels/group_norm/group_norm.h"

#include <cmath>

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

struct Problem {
  GroupNormDims dims;
  DType dtype = DType::f32;
  double centre = 3;  // of x: off zero, so that a variance out of squares alone would show

  int64_t cols() const { return dims.height * dims.channels; }
  double group_values() const {
    return static_cast<double>(dims.height * (dims.channels / dims.groups));
  }
};

void forward_case(Case& c, GroupNormArgs& args, const Problem& p,
                  const std::vector<int32_t>& lengths, bool keep) {
  args.dims = p.dims;
  args.layout = c.packed(lengths, 5, 1);
  args.x =
      c.rows_input(args.layout, p.cols(), p.dtype, {Fill::uniform, p.centre - 1, p.centre + 1});
  args.gamma = c.input({p.dims.channels}, DType::f32);
  args.beta = c.input({p.dims.channels}, DType::f32);
  // One value has no variance and a few may have hardly any: xhat is then a rounding error times
  // 1 / sqrt(epsilon) in every variant.
  if (p.group_values() < 4) args.epsilon = 1;
  // xhat reaches 2, and the mean is rounded as a float of the centre's size.
  const double scale = 4 + 4 * std::abs(p.centre);
  args.y = c.rows_output(
      "y", args.layout, p.cols(), p.dtype,
      {Tolerance::ulps(DType::f32, 4, scale).absolute, Tolerance::ulps(p.dtype, 4).relative});
  if (keep) {
    const int64_t n = args.layout.capacity.sequences;
    args.mean = c.output("mean", {n, p.dims.groups}, DType::f32, Tolerance::ulps(DType::f32, 8));
    args.rstd =
        c.output("rstd", {n, p.dims.groups}, DType::f32, Tolerance::ulps(DType::f32, 64, 4));
  }
  args.workspace =
      c.workspace(group_norm_workspace_bytes(c.context(), p.dims, args.layout.capacity));
  c.work(0, 2.0 * static_cast<double>(args.x.bytes()));
}

enum class Wanted { all, input, weights };

void grad_case(Case& c, GroupNormGradArgs& args, const Problem& p,
               const std::vector<int32_t>& lengths, Wanted wanted, bool accumulate) {
  args.dims = p.dims;
  args.accumulate = accumulate;
  args.layout = c.packed(lengths, 5, 1);
  const int64_t n = args.layout.capacity.sequences;
  args.x = c.rows_input(args.layout, p.cols(), p.dtype);
  args.gamma = c.input({p.dims.channels}, DType::f32);
  args.mean = c.input({n, p.dims.groups}, DType::f32, {Fill::uniform, -0.1, 0.1});
  args.rstd = c.input({n, p.dims.groups}, DType::f32, {Fill::uniform, 0.5, 2});
  args.dy = c.rows_input(args.layout, p.cols(), p.dtype);
  if (wanted != Wanted::weights) {
    const Tolerance of_dx = {64 * 0x1p-24, Tolerance::ulps(p.dtype, 8).relative};
    args.dx = c.rows_output("dx", args.layout, p.cols(), p.dtype, of_dx);
  }
  if (wanted != Wanted::input) {
    // As reduce_rows, for terms up to 2.2.
    const double pixels = static_cast<double>(c.extent_rows(args.layout) * p.dims.height);
    const Tolerance sums = {280 * std::sqrt(std::ceil(pixels / 64) + 1) * 0x1p-24, 0x1p-23};
    args.dgamma = c.sums(accumulate, "dgamma", {p.dims.channels}, DType::f32, sums);
    args.dbeta = c.sums(accumulate, "dbeta", {p.dims.channels}, DType::f32, sums);
  }
  args.workspace =
      c.workspace(group_norm_workspace_bytes(c.context(), p.dims, args.layout.capacity));
  c.work(0, 3.0 * static_cast<double>(args.x.bytes()));
}

}  // namespace

void group_norm_cases(Suite& suite) {
  const std::vector<int32_t> batches[] = {
      {}, {1}, {6, 6, 6}, {37, 18, 17, 5, 2, 1, 0}, {200, 129, 128, 65, 64, 63}};
  const std::initializer_list<GroupNormDims> sizes = {{1, 1, 1},   {7, 3, 7},   {8, 5, 2},
                                                      {32, 2, 32}, {33, 1, 3},  {48, 4, 6},
                                                      {70, 2, 5},  {140, 1, 4}, {16, 67, 4}};
  int number = -1;
  for (const auto& [dtype, dims, batch] : every(f32_bf16, sizes, {0, 1, 2, 3, 4})) {
    ++number;
    if (dims.height > 60 && batch == 4) continue;  // long and high
    const std::string label = str(name_of(dtype), "/batch ", batch, "/", dims.height, "x",
                                  dims.channels, " in ", dims.groups);
    const auto wanted = static_cast<Wanted>(number % 4 < 2 ? 0 : number % 4 - 1);
    suite.add(label, forward_case, {dims, dtype}, batches[batch], number % 3 != 0);
    suite.add(label, grad_case, {dims, dtype}, batches[batch], wanted, number % 2 == 0);
  }
  // So far from zero that half the digits are the centre's.
  suite.add("f32/far from zero", forward_case, {{24, 5, 3}, DType::f32, 4096}, {100, 70, 3}, false);
  for (DType dtype : f32_bf16) {
    const Problem p{{32, 24, 8}, dtype};
    const std::string label = str(name_of(dtype), "/8x24x522x32 in 8");
    const std::vector<int32_t> lines(8, 522);
    suite.add_bench(label, forward_case, p, lines, true);
    suite.add_bench(label, grad_case, p, lines, Wanted::all, true);
  }
}

}  // namespace rondo::check
