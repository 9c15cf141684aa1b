// Every small op's gradient against finite differences of its forward reference, in double.
#include <utility>

#include "kernels/base/packed_host.h"
#include "kernels/dropout/dropout.h"
#include "kernels/loss/loss.h"
#include "kernels/norm/norm.h"
#include "kernels/pack/pack.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pool/pool.h"
#include "kernels/softmax/softmax.h"
#include "kernels/subsample/subsample.h"
#include "tests/kernels/finite_difference.h"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int64_t rows = 5, cols = 7;
using Values = std::vector<double>;

Values nan_values(int64_t n) { return Values(static_cast<size_t>(n), std::nan("")); }

}  // namespace

TEST_CASE("gradients of the activations") {
  for (const auto& [f, name, operands, saves] : pointwise_functions) {
    if (operands != 1) continue;
    INFO(name);
    Values x = uniform_values(rows * cols, 1), y = x, dx = nan_values(rows * cols);
    Values dy = uniform_values(rows * cols, 2);
    const auto loss = [&] {
      run_ref(PointwiseArgs{f, view_of(x, {rows, cols}), {}, view_of(y, {rows, cols})});
      return dot(y, dy);
    };
    loss();
    Values& saved = saves == PointwiseSaves::input ? x : y;
    run_ref(PointwiseGradArgs{f, view_of(saved, {rows, cols}), view_of(dy, {rows, cols}),
                              view_of(dx, {rows, cols})});
    check_gradient(x, dx, loss);
  }
}

TEST_CASE("gradient of log_softmax") {
  Values x = uniform_values(rows * cols, 1, -3, 3), y = x, dx = nan_values(rows * cols);
  Values dy = uniform_values(rows * cols, 2);
  const auto loss = [&] {
    run_ref(LogSoftmaxArgs{view_of(x, {rows, cols}), view_of(y, {rows, cols})});
    return dot(y, dy);
  };
  loss();
  run_ref(LogSoftmaxGradArgs{view_of(y, {rows, cols}), view_of(dy, {rows, cols}),
                             view_of(dx, {rows, cols})});
  check_gradient(x, dx, loss);
}

TEST_CASE("gradient of cross_entropy, one target ignored") {
  Values x = uniform_values(rows * cols, 1, -3, 3), grad = nan_values(rows * cols);
  Values losses = nan_values(rows), scale = uniform_values(rows, 3);
  const std::vector<int32_t> targets = {0, 6, ignored_target, 3, 3};
  CrossEntropyArgs a;
  a.logits = view_of(x, {rows, cols});
  a.targets = targets.data();
  a.loss = view_of(losses, {rows});
  const auto loss = [&] {
    CrossEntropyArgs forward = a;
    forward.grad = {};
    run_ref(forward);
    return dot(losses, scale);
  };
  a.grad = view_of(grad, {rows, cols});
  a.grad_scale = view_of(scale, {rows});
  run_ref(a);
  check_gradient(x, grad, loss);
}

TEST_CASE("gradient of mse") {
  for (MseReduction reduction : {MseReduction::mean, MseReduction::sum}) {
    Values pred = uniform_values(rows * cols, 1), target = uniform_values(rows * cols, 2);
    Values grad = nan_values(rows * cols), losses = nan_values(rows);
    Values scale = uniform_values(rows, 3);
    MseArgs a;
    a.reduction = reduction;
    a.pred = view_of(pred, {rows, cols});
    a.target = view_of(target, {rows, cols});
    a.loss = view_of(losses, {rows});
    const auto loss = [&] {
      MseArgs forward = a;
      forward.grad = {};
      run_ref(forward);
      return dot(losses, scale);
    };
    a.grad = view_of(grad, {rows, cols});
    a.grad_scale = view_of(scale, {rows});
    run_ref(a);
    check_gradient(pred, grad, loss);
  }
}

TEST_CASE("gradients of pooling") {
  const PackedHost packed = build_packed(std::vector<int32_t>{5, 3, 3, 1, 0});
  const int64_t total = packed.extent.rows, n = packed.extent.sequences;
  for (Pooling pooling : {Pooling::last, Pooling::mean}) {
    Values x = uniform_values(total * cols, 1), dx = nan_values(total * cols);
    Values y = nan_values(n * cols), dy = uniform_values(n * cols, 2);
    const auto loss = [&] {
      run_ref(PoolArgs{pooling, packed.view(), view_of(x, {total, cols}), view_of(y, {n, cols})});
      return dot(y, dy);
    };
    run_ref(
        PoolGradArgs{pooling, packed.view(), view_of(dy, {n, cols}), view_of(dx, {total, cols})});
    check_gradient(x, dx, loss);
  }
}

TEST_CASE("dropout is its own gradient") {
  const PackedHost packed = build_packed(std::vector<int32_t>{5, 3, 1});
  const int64_t total = packed.extent.rows;
  const uint64_t seed = 42;
  Values x = uniform_values(total * cols, 1), y = nan_values(total * cols);
  Values dy = uniform_values(total * cols, 2), dx = nan_values(total * cols);
  DropoutArgs a = {packed.view(), view_of(x, {total, cols}), view_of(y, {total, cols}), 0.4, 3,
                   &seed};
  const auto loss = [&] {
    run_ref(a);
    return dot(y, dy);
  };
  run_ref(DropoutArgs{packed.view(), view_of(dy, {total, cols}), view_of(dx, {total, cols}), 0.4, 3,
                      &seed});
  check_gradient(x, dx, loss);
}

TEST_CASE("gradients of layer_norm") {
  Values x = uniform_values(rows * cols, 1), gamma = uniform_values(cols, 2);
  Values beta = uniform_values(cols, 3), dy = uniform_values(rows * cols, 4);
  Values y = nan_values(rows * cols), mean = nan_values(rows), rstd = nan_values(rows);
  LayerNormArgs a;
  a.x = view_of(x, {rows, cols});
  a.gamma = view_of(gamma, {cols});
  a.beta = view_of(beta, {cols});
  a.y = view_of(y, {rows, cols});
  a.mean = view_of(mean, {rows});
  a.rstd = view_of(rstd, {rows});
  const auto loss = [&] {
    run_ref(a);
    return dot(y, dy);
  };
  loss();
  Values dx = nan_values(rows * cols), dgamma(cols, 10), dbeta(cols, 20);
  LayerNormGradArgs g;
  g.x = a.x;
  g.gamma = a.gamma;
  g.mean = a.mean;
  g.rstd = a.rstd;
  g.dy = view_of(dy, {rows, cols});
  g.dx = view_of(dx, {rows, cols});
  g.dgamma = view_of(dgamma, {cols});
  g.dbeta = view_of(dbeta, {cols});
  g.accumulate = true;
  run_ref(g);
  for (double& v : dgamma) v -= 10;
  for (double& v : dbeta) v -= 20;
  check_gradient(x, dx, loss);
  check_gradient(gamma, dgamma, loss);
  check_gradient(beta, dbeta, loss);
}

TEST_CASE("gradients of stacked frames: stacking, subsampling, overlap, gaps") {
  const std::vector<int32_t> lengths = {7, 4, 3, 1, 0};
  for (auto [stack, stride] : {std::pair{3, 3}, {1, 2}, {3, 2}, {4, 1}, {2, 3}}) {
    std::vector<int32_t> shorter;
    for (int32_t l : lengths) shorter.push_back(stacked_length(l, stride));
    const PackedHost from = build_packed(lengths), to = build_packed(shorter);
    const int64_t in = from.extent.rows, out = to.extent.rows, wide = cols * stack;
    Values x = uniform_values(in * cols, 1), dx = nan_values(in * cols);
    Values y = nan_values(out * wide), dy = uniform_values(out * wide, 2);
    const auto loss = [&] {
      run_ref(StackFramesArgs{stack, stride, from.view(), to.view(), view_of(x, {in, cols}),
                              view_of(y, {out, wide})});
      return dot(y, dy);
    };
    run_ref(StackFramesGradArgs{stack, stride, from.view(), to.view(), view_of(dy, {out, wide}),
                                view_of(dx, {in, cols})});
    check_gradient(x, dx, loss);
  }
}

TEST_CASE("pack and unpack are each other's gradient, and padding never gets in") {
  const PackedHost packed = build_packed(std::vector<int32_t>{4, 2, 2, 0});
  const int64_t total = packed.extent.rows, n = 4, frames = 5;
  const std::vector<int32_t> order = {2, 0, 3, 1};
  for (PaddedLayout layout : {PaddedLayout::time_major, PaddedLayout::batch_major}) {
    const bool time_major = layout == PaddedLayout::time_major;
    const auto shape = [&](Values& v) {
      return time_major ? view_of(v, {frames, n, cols}) : view_of(v, {n, frames, cols});
    };
    Values x = uniform_values(frames * n * cols, 1), y = nan_values(total * cols);
    Values dy = uniform_values(total * cols, 2), dx = nan_values(frames * n * cols);
    const auto loss = [&] {
      run_ref(PackArgs{layout, packed.view(), order.data(), shape(x), view_of(y, {total, cols})});
      return dot(y, dy);
    };
    run_ref(UnpackArgs{layout, packed.view(), order.data(), view_of(dy, {total, cols}), shape(dx)});
    check_gradient(x, dx, loss);
    // Whatever has no gradient is padding: NaN there must not reach the packed rows.
    Values marked = x;
    int64_t padding = 0;
    for (size_t i = 0; i < marked.size(); ++i) {
      if (dx[i] == 0) marked[i] = std::nan(""), ++padding;
    }
    CHECK(padding == (frames * n - total) * cols);
    run_ref(
        PackArgs{layout, packed.view(), order.data(), shape(marked), view_of(y, {total, cols})});
    for (double v : y) REQUIRE(std::isfinite(v));
    // Sequence 0 of the batch is padded sequence 2.
    CHECK(y[0] == x[static_cast<size_t>((time_major ? 2 : 2 * frames) * cols)]);
  }
}
