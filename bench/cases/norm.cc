#include <cmath>

#include "bench/cases/check/check.h"
#include "kernels/norm/norm.h"

namespace rondo::check {
namespace {

void layer_norm_case(Case& c, DType dtype, int64_t rows, int64_t cols, bool keep) {
  LayerNormArgs args;
  args.row_count = c.ints({static_cast<int32_t>(rows - rows / 8)});
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
  c.run(args);
}

enum class Wanted { all, input, weights };

void layer_norm_grad_case(Case& c, DType dtype, int64_t rows, int64_t cols, Wanted wanted,
                          bool accumulate) {
  LayerNormGradArgs args;
  args.accumulate = accumulate;
  const int64_t live = rows - rows / 8;
  args.row_count = c.ints({static_cast<int32_t>(live)});
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
  c.run(args);
}

}  // namespace

void norm_cases(Suite& suite) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t rows : {0, 1, 33, 65, 150, 1300}) {
      for (int64_t cols : {1, 7, 31, 32, 33, 65, 129, 300, 1101, 1200}) {
        if (rows == 1300 ? cols != 33 : rows > 33 && cols > 1000) continue;
        const std::string label = str(name_of(dtype), "/", rows, "x", cols);
        suite.add<LayerNormArgs>(
            label, [=](Case& c) { layer_norm_case(c, dtype, rows, cols, cols % 2 == 1); });
        for (Wanted wanted : {Wanted::all, Wanted::input, Wanted::weights}) {
          const bool accumulate = wanted == Wanted::weights;
          suite.add<LayerNormGradArgs>(str(label, "/", static_cast<int>(wanted)), [=](Case& c) {
            layer_norm_grad_case(c, dtype, rows, cols, wanted, accumulate);
          });
        }
      }
    }
  }
  suite.add_bench<LayerNormArgs>("f32/4096x512",
                                 [](Case& c) { layer_norm_case(c, DType::f32, 4096, 512, true); });
  suite.add_bench<LayerNormGradArgs>("f32/4096x512", [](Case& c) {
    layer_norm_grad_case(c, DType::f32, 4096, 512, Wanted::all, true);
  });
}

}  // namespace rondo::check
