// Small ops on inputs whose results can be written down. checkop compares variants with each other;
// what they share (row limits, lengths) is checked here, on every backend of this machine.
#include <cmath>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/cast/cast.h"
#include "kernels/loss/loss.h"
#include "kernels/norm/norm.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pool/pool.h"
#include "kernels/pool2d/pool2d.h"
#include "kernels/reduce/reduce.h"
#include "kernels/softmax/softmax.h"
#include "kernels/subsample/subsample.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

using Floats = std::vector<float>;
constexpr float nan_value = NAN, untouched = 77;

TensorView view(Floats& v, int64_t rows, int64_t cols) {
  REQUIRE(static_cast<int64_t>(v.size()) == rows * cols);
  return {v.data(), DType::f32, {rows, cols}};
}
TensorView view(Floats& v) { return {v.data(), DType::f32, {static_cast<int64_t>(v.size())}}; }

template <class Args>
void run_on(Backend backend, const Args& args) {
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(2);
  run(Context{backend, &cpu_device(), &stream, &pool}, args);
}

void check_near(const Floats& got, const Floats& want, float tolerance = 2e-6f) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": got " << got[i] << ", want " << want[i]);
    REQUIRE(std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i])));
  }
}

constexpr Backend backends[] = {Backend::ref, Backend::cpu};

}  // namespace

TEST_CASE("log_softmax of known rows stops at row_count") {
  const int32_t count = 2;
  const float third = std::log(3.0f);
  for (Backend backend : backends) {
    Floats x = {5, 5, 5, 0, std::log(2.0f), -INFINITY, nan_value, 1, 2};
    Floats y(9, untouched);
    run_on(backend, LogSoftmaxArgs{view(x, 3, 3), view(y, 3, 3), &count});
    CHECK(y[5] == -INFINITY);
    y[5] = 0;
    check_near(y, {-third, -third, -third, -third, std::log(2.0f / 3), 0, untouched, untouched,
                   untouched});
    Floats dy = {1, 2, 3, 0, 0, 0, 1, 1, 1}, dx(9, untouched);
    Floats probability(9, -third);
    run_on(backend,
           LogSoftmaxGradArgs{view(probability, 3, 3), view(dy, 3, 3), view(dx, 3, 3), &count});
    check_near(dx, {-1, 0, 1, 0, 0, 0, untouched, untouched, untouched});
  }
}

TEST_CASE("cross_entropy of known rows: ignored rows are 0, wrong targets NaN") {
  const int32_t count = 4;
  const std::vector<int32_t> targets = {1, -1, 7, -2, 0};
  for (Backend backend : backends) {
    Floats x = {0, 0, nan_value, nan_value, 1, 2, 1, 2, nan_value, nan_value};
    Floats scale = {2, 1, 1, 1, 1}, loss(5, untouched), grad(10, untouched);
    CrossEntropyArgs a;
    a.logits = view(x, 5, 2), a.targets = targets.data(), a.grad_scale = view(scale);
    a.loss = view(loss), a.grad = view(grad, 5, 2), a.row_count = &count;
    run_on(backend, a);
    check_near({loss[0], loss[1], loss[4]}, {std::log(2.0f), 0, untouched});
    check_near({grad[0], grad[1], grad[2], grad[3], grad[8]}, {1, -1, 0, 0, untouched});
    for (size_t i : {4, 5, 6, 7}) CHECK(std::isnan(grad[i]));
    CHECK(std::isnan(loss[2]));
    CHECK(std::isnan(loss[3]));
  }
  CHECK_NOTHROW(validate_targets(std::vector<int32_t>{0, 1, -1}, 2, "a.txt"));
  CHECK_THROWS_WITH(validate_targets(std::vector<int32_t>{0, 2}, 2, "a.txt"),
                    "a.txt: target 1 is 2, expected 0 to 1 or -1 (ignored)");
  CHECK_THROWS_AS(validate_targets(std::vector<int32_t>{-2}, 2, "a.txt"), InputError);
}

TEST_CASE("mse of known rows, mean and sum") {
  const int32_t count = 1;
  for (Backend backend : backends) {
    for (MseReduction reduction : {MseReduction::mean, MseReduction::sum}) {
      const float share = reduction == MseReduction::mean ? 0.5f : 1;
      Floats pred = {1, 2, nan_value, 0}, target = {2, 4, 0, 0};
      Floats loss(2, untouched), grad(4, untouched);
      MseArgs a;
      a.reduction = reduction;
      a.pred = view(pred, 2, 2), a.target = view(target, 2, 2), a.loss = view(loss);
      a.grad = view(grad, 2, 2), a.row_count = &count;
      run_on(backend, a);
      check_near(loss, {5 * share, untouched});
      check_near(grad, {-2 * share, -4 * share, untouched, untouched});
    }
  }
}

TEST_CASE("layer_norm of a known row stops at row_count") {
  const int32_t count = 1;
  for (Backend backend : backends) {
    Floats x = {1, 2, 3, nan_value, 0, 0}, gamma = {1, 2, 1}, beta = {0, 1, 0};
    Floats y(6, untouched), mean(2, untouched), rstd(2, untouched);
    LayerNormArgs a;
    a.epsilon = 0;
    a.x = view(x, 2, 3), a.gamma = view(gamma), a.beta = view(beta), a.y = view(y, 2, 3);
    a.mean = view(mean), a.rstd = view(rstd), a.row_count = &count;
    run_on(backend, a);
    const float s = std::sqrt(1.5f);  // 1 / sqrt(2/3)
    check_near(y, {-s, 1, s, untouched, untouched, untouched});
    check_near(mean, {2, untouched});
    check_near(rstd, {s, untouched});
    Floats dy = {1, 1, 1, nan_value, 0, 0}, dx(6, untouched), dgamma(3, 1), dbeta(3, 1);
    LayerNormGradArgs g;
    g.x = a.x, g.gamma = a.gamma, g.mean = a.mean, g.rstd = a.rstd, g.row_count = &count;
    g.dy = view(dy, 2, 3), g.dgamma = view(dgamma), g.dbeta = view(dbeta);
    run_on(backend, g);
    check_near(dgamma, {-s, 0, s});
    check_near(dbeta, {1, 1, 1});
    g.dx = view(dx, 2, 3);
    g.accumulate = true;
    run_on(backend, g);
    check_near(dgamma, {-2 * s, 0, 2 * s});
    CHECK(dx[3] == untouched);
  }
}

TEST_CASE("pooling picks the last frame or the mean of the frames that exist") {
  const PackedHost packed = build_packed(std::vector<int32_t>{3, 1, 0});
  PackedView layout = packed.view();
  std::vector<int32_t> lengths = {3, 1, 0, 1000};  // past the extent: never used
  layout.lengths = lengths.data();
  layout.capacity = {6, 3, 4};
  for (Backend backend : backends) {
    Floats x = {1, 10, 2, 6, nan_value, nan_value};  // rows: (0,0) (0,1) (1,0) (2,0)
    Floats y(4, untouched);
    run_on(backend, PoolArgs{Pooling::last, layout, view(x, 6, 1), view(y, 4, 1)});
    CHECK(y == Floats{6, 10, 0, 0});
    run_on(backend, PoolArgs{Pooling::mean, layout, view(x, 6, 1), view(y, 4, 1)});
    CHECK(y == Floats{3, 10, 0, 0});
    Floats dy = {3, 5, nan_value, nan_value}, dx(6, untouched);
    run_on(backend, PoolGradArgs{Pooling::last, layout, view(dy, 4, 1), view(dx, 6, 1)});
    CHECK(dx == Floats{0, 5, 0, 3, untouched, untouched});
    run_on(backend, PoolGradArgs{Pooling::mean, layout, view(dy, 4, 1), view(dx, 6, 1)});
    CHECK(dx == Floats{1, 5, 1, 1, untouched, untouched});
  }
}

TEST_CASE("stacked frames end in zeros") {
  const PackedHost from = build_packed(std::vector<int32_t>{3, 2}),
                   to = build_packed(std::vector<int32_t>{2, 1});
  for (Backend backend : backends) {
    Floats x = {1, 10, 2, 20, 3};  // frames 1 2 3 of one sequence, 10 20 of the other
    Floats y(6, untouched);
    run_on(backend, StackFramesArgs{2, 2, from.view(), to.view(), view(x, 5, 1), view(y, 3, 2)});
    CHECK(y == Floats{1, 2, 10, 20, 3, 0});
  }
}

TEST_CASE("reductions and element-wise ops stop at row_count") {
  const int32_t count = 2;
  for (Backend backend : backends) {
    Floats x = {1, 2, 3, 4, nan_value, nan_value}, sums = {10, 20};
    ReduceRowsArgs reduce;
    reduce.x = view(x, 3, 2), reduce.y = view(sums), reduce.row_count = &count;
    run_on(backend, reduce);
    CHECK(sums == Floats{4, 6});
    reduce.accumulate = true;
    run_on(backend, reduce);
    CHECK(sums == Floats{8, 12});

    Floats y(6, untouched);
    run_on(backend, CastArgs{view(x, 3, 2), view(y, 3, 2), &count});
    CHECK(y == Floats{1, 2, 3, 4, untouched, untouched});
    run_on(backend, AccumulateArgs{2, view(x, 3, 2), view(y, 3, 2), &count});
    CHECK(y == Floats{3, 6, 9, 12, untouched, untouched});
    run_on(backend, ScaleArgs{-1, view(x, 3, 2), view(y, 3, 2), &count});
    CHECK(y == Floats{-1, -2, -3, -4, untouched, untouched});
    run_on(backend, FillArgs{view(y, 3, 2), 5, &count});
    CHECK(y == Floats{5, 5, 5, 5, untouched, untouched});
  }
}

TEST_CASE("sums of squares and counts of what is not finite") {
  for (Backend backend : backends) {
    Floats x = {3, 4, 1e30f, -1e30f};
    double squares = 0.5;
    SumSquaresArgs sum;
    sum.x = TensorView(x.data(), DType::f32, {2});
    sum.out = TensorView(&squares, DType::f64, {1});
    run_on(backend, sum);
    CHECK(squares == 25);
    sum.accumulate = true;
    run_on(backend, sum);
    CHECK(squares == 50);
    sum.x = view(x);
    run_on(backend, sum);
    CHECK(std::isfinite(squares));
    Floats mixed = {1, NAN, INFINITY, -INFINITY, 3e38f, 0};
    int32_t bad = 7;
    CountNonfiniteArgs counting;
    counting.x = view(mixed);
    counting.out = TensorView(&bad, DType::i32, {1});
    run_on(backend, counting);
    CHECK(bad == 3);
  }
}

TEST_CASE("gelu and its gradient at known points, and to the last places far from zero") {
  // By tables of the normal distribution: 0.8413447 of it lies below 1, where its density is
  // 0.2419707.
  for (Backend backend : backends) {
    Floats x = {0, 1, -1, 2, -3, nan_value}, y(6, untouched), dx(6, untouched), dy(6, 1);
    run_on(backend, PointwiseArgs{PointwiseFunction::gelu, view(x, 2, 3), {}, view(y, 2, 3)});
    run_on(backend, PointwiseGradArgs{PointwiseFunction::gelu, view(x, 2, 3), view(dy, 2, 3),
                                      view(dx, 2, 3)});
    CHECK(std::isnan(y[5]));
    CHECK(std::isnan(dx[5]));
    y.pop_back(), dx.pop_back();
    check_near(y, {0, 0.8413447f, -0.1586553f, 1.9544997f, -0.0040496941f});
    check_near(dx, {0.5f, 1.0833155f, -0.0833155f, 1.0852319f, -0.0119456f});
  }
  Floats x, y(27001);
  for (int i = 0; i < 27001; ++i) x.push_back(-12.9f + 0.001f * static_cast<float>(i));
  run_on(Backend::cpu,
         PointwiseArgs{PointwiseFunction::gelu, view(x, 1, 27001), {}, view(y, 1, 27001)});
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = x[i] * std::erfc(-x[i] / std::sqrt(2.0)) / 2;
    const double off = want == 0 ? std::abs(y[i]) : std::abs(y[i] / want - 1);
    if (!(off <= worst)) worst = off;
  }
  INFO(worst * 0x1p23 << " ulp");
  CHECK(worst <= 4 * 0x1p-23);
}

TEST_CASE("pooling over images: windows, what is left at the end, what is dropped at the bottom") {
  // Three columns of three pixels with two channels: the second holds ten times the first.
  Floats x = {1, 10, 4, 40, 9, 90, 3, 30, 2, 20, 9, 90, 7, 70, 8, 80, 9, 90};
  Floats dy = {1, 2, 3, 4};
  const PackedHost from = build_packed(std::vector<int32_t>{3});
  const PackedHost to = build_packed(std::vector<int32_t>{2});
  const Pool2dDims dims = {2, 3, 2, 2};
  const auto pooled = [&](Backend backend, Pooling2d pooling) {
    Floats y(4, nan_value);
    run_on(backend,
           Pool2dArgs{pooling, dims, from.view(), to.view(), view(x, 3, 6), view(y, 2, 2)});
    return y;
  };
  const auto gradient = [&](Backend backend, Pooling2d pooling) {
    Floats dx(x.size(), nan_value);
    run_on(backend, Pool2dGradArgs{pooling, dims, from.view(), to.view(), view(x, 3, 6),
                                   view(dy, 2, 2), view(dx, 3, 6)});
    return dx;
  };
  for (Backend backend : backends) {
    CHECK(pooled(backend, Pooling2d::greatest) == Floats{4, 40, 8, 80});
    CHECK(pooled(backend, Pooling2d::mean) == Floats{2.5, 25, 7.5, 75});
    CHECK(gradient(backend, Pooling2d::greatest) ==
          Floats{0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0});
    CHECK(gradient(backend, Pooling2d::mean) ==
          Floats{.25, .5, .25, .5, 0, 0, .25, .5, .25, .5, 0, 0, 1.5, 2, 1.5, 2, 0, 0});
    // The greatest twice: the first has the gradient. A NaN is passed on.
    Floats tied = {1, 5, 5, nan_value}, greatest(2), dx(4, untouched), dy2 = {6, 7};
    const PackedHost one = build_packed(std::vector<int32_t>{1});
    const Pool2dDims high = {1, 4, 2, 1};
    run_on(backend, Pool2dArgs{Pooling2d::greatest, high, one.view(), one.view(), view(tied, 1, 4),
                               view(greatest, 1, 2)});
    CHECK((greatest[0] == 5 && std::isnan(greatest[1])));
    tied = {5, 5, nan_value, 5};
    run_on(backend, Pool2dGradArgs{Pooling2d::greatest, high, one.view(), one.view(),
                                   view(tied, 1, 4), view(dy2, 1, 2), view(dx, 1, 4)});
    CHECK(dx == Floats{6, 0, 7, 0});
  }
}
