#include "kernels/norm/norm.h"

#include <cmath>

#include "bench/cases/check/check.h"

namespace rondo::check {
namespace {

void layer_norm_case(Case& c, LayerNormArgs& args, DType dtype, int64_t rows, int64_t cols,
                     bool keep) {
  args.row_count = c.live_rows(rows);
  // Off centre, so that a one-pass variance would show.
  args.x = args.y =
      c.in_out("y", {rows, cols}, dtype, Tolerance::ulps(dtype, 64), {Fill::uniform, 2, 4});
  args.gamma = c.input({cols}, DType::f32);
  args.beta = c.input({cols}, DType::f32);
  const Tolerance tolerance = Tolerance::ulps(DType::f32, 16, 4);
  if (keep) {
    args.mean = c.in_out("mean", {rows}, DType::f32, tolerance);
    args.rstd = c.in_out("rstd", {rows}, DType::f32, tolerance);
  }
  // One column has no variance: xhat is a rounding error times 1 / sqrt(epsilon) in every variant.
  if (cols == 1) args.epsilon = 1;
  c.work(0, 2.0 * live_bytes(rows, cols, dtype));
}

enum class Wanted { all, input, weights };

void layer_norm_grad_case(Case& c, LayerNormGradArgs& args, DType dtype, int64_t rows, int64_t cols,
                          Wanted wanted, bool accumulate) {
  args.accumulate = accumulate;
  args.row_count = c.live_rows(rows);
  args.x = c.input({rows, cols}, dtype);
  args.gamma = c.input({cols}, DType::f32);
  args.mean = c.input({rows}, DType::f32, {Fill::uniform, -0.1, 0.1});
  args.rstd = c.input({rows}, DType::f32, {Fill::uniform, 0.5, 2});
  const Tolerance of_dx = {64 * 0x1p-24, Tolerance::ulps(dtype, 8).relative};
  if (wanted == Wanted::weights) {
    args.dy = c.input({rows, cols}, dtype);
  } else {
    args.dy = args.dx = c.in_out("dx", {rows, cols}, dtype, of_dx);
  }
  if (wanted != Wanted::input) {
    // As reduce_rows, for terms up to 2.
    const Tolerance sums = {240 * std::sqrt(std::ceil(static_cast<double>(rows) / 64)) * 0x1p-24,
                            0x1p-23};
    args.dgamma = c.in_out("dgamma", {cols}, DType::f32, sums);
    args.dbeta = c.in_out("dbeta", {cols}, DType::f32, sums);
  }
  if (wanted == Wanted::all) {
    args.workspace = c.workspace(layer_norm_grad_workspace_bytes(c.context(), rows, cols));
  }
  c.work(0, (wanted == Wanted::weights ? 2.0 : 3.0) * live_bytes(rows, cols, dtype));
}

}  // namespace

void norm_cases(Suite& suite) {
  for (const auto& [dtype, rows, cols] :
       every(f32_bf16, {0, 1, 33, 65, 150, 1300}, {1, 7, 31, 32, 33, 65, 129, 300, 1101, 1200})) {
    if (rows == 1300 ? cols != 33 : rows > 33 && cols > 1000) continue;
    const std::string label = str(name_of(dtype), "/", rows, "x", cols);
    suite.add(label, layer_norm_case, dtype, rows, cols, cols % 2 == 1);
    for (Wanted wanted : {Wanted::all, Wanted::input, Wanted::weights})
      suite.add(str(label, "/", static_cast<int>(wanted)), layer_norm_grad_case, dtype, rows, cols,
                wanted, wanted == Wanted::weights);
  }
  suite.add_bench("f32/4096x512", layer_norm_case, DType::f32, 4096, 512, true);
  suite.add_bench("f32/4096x512", layer_norm_grad_case, DType::f32, 4096, 512, Wanted::all, true);
}

}  // namespace rondo::check
