// Sums of columns on the simulated GPU: their bits depend on the rows in use, not on the workspace
// that spreads them over blocks, nor on how many spare rows a batch has.
#include <cmath>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/norm/norm.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr int64_t cols = 37;
constexpr int32_t live = 1300;

template <class Args>
void run_simulated(const Context& context, const Args& args) {
  run(context, args);
  context.stream->synchronize();
}

struct Simulated {
  Stream stream = sim_device().make_stream();
  ThreadPool pool{1};
  Context context{Backend::sim, &sim_device(), &stream, &pool};
};

// Values of very different sizes, so that rounding on the way gives other bits; NaN in spare
// rows.
std::vector<float> matrix(int64_t rows, double phase) {
  std::vector<float> x(static_cast<size_t>(rows * cols), NAN);
  for (int32_t i = 0; i < live * cols; ++i) {
    x[static_cast<size_t>(i)] =
        static_cast<float>(std::exp(6 * std::sin(i * 0.37 + phase)) * std::cos(i * 1.7 + phase));
  }
  return x;
}

TensorView view(std::vector<float>& x, std::initializer_list<int64_t> dims) {
  return TensorView(x.data(), DType::f32, dims);
}

std::vector<float> sums_of_rows(int64_t rows, bool spread) {
  Simulated gpu;
  std::vector<float> x = matrix(rows, 0), y(cols, NAN);
  std::vector<double> scratch(reduce_rows_workspace_bytes(gpu.context, rows, cols) / 8);
  CHECK(scratch.size() >= 3 * cols);
  ReduceRowsArgs a;
  a.x = view(x, {rows, cols});
  a.y = view(y, {cols});
  a.row_count = &live;
  if (spread) {
    a.workspace = TensorView(scratch.data(), DType::u8, {static_cast<int64_t>(scratch.size() * 8)});
  }
  run_simulated(gpu.context, a);
  return y;
}

std::vector<float> weight_gradients(int64_t rows, bool spread) {
  Simulated gpu;
  std::vector<float> x = matrix(rows, 1), dy = matrix(rows, 2), gamma(cols, 1);
  std::vector<float> mean(static_cast<size_t>(rows), 0.1f), rstd(static_cast<size_t>(rows), 0.7f);
  std::vector<float> both(2 * cols, NAN);
  std::vector<double> scratch(layer_norm_grad_workspace_bytes(gpu.context, rows, cols) / 8);
  LayerNormGradArgs a;
  a.x = view(x, {rows, cols});
  a.dy = view(dy, {rows, cols});
  a.gamma = view(gamma, {cols});
  a.mean = view(mean, {rows});
  a.rstd = view(rstd, {rows});
  a.dgamma = view(both, {cols});
  a.dbeta = TensorView(both.data() + cols, DType::f32, {cols});
  a.row_count = &live;
  if (spread) {
    a.workspace = TensorView(scratch.data(), DType::u8, {static_cast<int64_t>(scratch.size() * 8)});
  }
  run_simulated(gpu.context, a);
  return both;
}

}  // namespace

TEST_CASE("sums of columns: the same bits with and without a workspace, in any capacity") {
  for (auto* sums : {sums_of_rows, weight_gradients}) {
    const std::vector<float> want = sums(live, true);
    for (float v : want) REQUIRE(std::isfinite(v));
    for (int64_t rows : {int64_t{live}, int64_t{live} + 1, int64_t{3000}}) {
      for (bool spread : {false, true}) {
        INFO(rows << " rows, " << (spread ? "with" : "without") << " workspace");
        CHECK(sums(rows, spread) == want);
      }
    }
  }
}

TEST_CASE("sums of columns: a workspace that is too small is refused") {
  Simulated gpu;
  std::vector<float> x = matrix(live, 0), y(cols);
  std::vector<double> scratch(cols);
  ReduceRowsArgs a;
  a.x = view(x, {live, cols});
  a.y = view(y, {cols});
  a.workspace = TensorView(scratch.data(), DType::u8, {cols * 8});
  CHECK_THROWS_WITH(run_simulated(gpu.context, a), Catch::Contains("workspace"));
}
