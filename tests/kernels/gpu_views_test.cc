// What a call's views must look like is asked before anything is launched.
#include <vector>

#include "kernels/base/dispatch.h"
#include "kernels/cast/cast.h"
#include "kernels/ctc/ctc.h"
#include "kernels/dropout/dropout.h"
#include "kernels/loss/loss.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pool/pool.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simt/sim/sim_device.h"
#include "kernels/softmax/softmax.h"
#include "kernels/subsample/subsample.h"
#include "tests/catch.h"

namespace rondo {
namespace {

struct Views {
  std::vector<float> memory = std::vector<float>(256);
  Stream stream = sim_device().make_stream();
  Context context{Backend::sim, &sim_device(), &stream, nullptr};

  TensorView matrix(int64_t rows, int64_t cols) {
    return {memory.data(), DType::f32, {rows, cols}};
  }
  TensorView vector(int64_t n) { return {memory.data(), DType::f32, {n}}; }
  template <class Args, class Set>
  void refused(const Set& set, const char* why) {
    Args args;
    set(args);
    INFO(Args::op << ": " << why);
    CHECK_THROWS_WITH(run(context, args), Catch::Contains(why));
    stream.synchronize();
  }
};

}  // namespace

TEST_CASE("views of a wrong shape are refused, with what was expected: small ops") {
  Views v;
  const TensorView x = v.matrix(4, 6), wrong = v.matrix(4, 5), six = v.vector(6), few = v.vector(3);
  v.refused<LogSoftmaxArgs>(
      [&](auto& a) {
        a.x = x;
        a.y = wrong;
      },
      "log_softmax: y is f32 [4, 5], expected f32 [4, 6]");
  v.refused<LogSoftmaxGradArgs>(
      [&](auto& a) {
        a.y = x;
        a.dy = x;
        a.dx = wrong;
      },
      "log_softmax_grad: dx is f32 [4, 5]");
  v.refused<CrossEntropyArgs>(
      [&](auto& a) {
        a.logits = x;
        a.loss = few;
      },
      "cross_entropy: loss is f32 [3], expected 4 elements");
  v.refused<MseArgs>(
      [&](auto& a) {
        a.pred = x;
        a.target = wrong;
        a.loss = v.vector(4);
      },
      "mse: target is");
  v.refused<LayerNormArgs>(
      [&](auto& a) {
        a.x = x;
        a.gamma = few;
        a.beta = six;
        a.y = x;
      },
      "layer_norm: gamma is");
  v.refused<LayerNormGradArgs>(
      [&](auto& a) {
        a.x = x;
        a.gamma = six;
        a.mean = v.vector(4);
        a.rstd = few;
        a.dy = x;
      },
      "layer_norm_grad: rstd is");
  v.refused<DropoutArgs>(
      [&](auto& a) {
        a.x = x;
        a.y = wrong;
      },
      "dropout: y is");
  v.refused<PointwiseArgs>(
      [&](auto& a) {
        a.function = PointwiseFunction::bias;
        a.x = x;
        a.z = few;
        a.y = x;
      },
      "pointwise: z is f32 [3], expected 6 elements");
  v.refused<PointwiseGradArgs>(
      [&](auto& a) {
        a.function = PointwiseFunction::tanh;
        a.saved = wrong;
        a.dy = x;
        a.dx = x;
      },
      "pointwise_grad: saved is");
  v.refused<PointwiseGradArgs>(
      [&](auto& a) {
        a.saved = x;
        a.dy = x;
        a.dx = wrong;
      },
      "pointwise_grad: dx is");
  v.refused<ReduceRowsArgs>(
      [&](auto& a) {
        a.x = x;
        a.y = few;
      },
      "reduce_rows: y is");
  v.refused<SumSquaresArgs>(
      [&](auto& a) {
        a.x = six;
        a.out = few;
      },
      "sum_squares: out is");
  v.refused<CastArgs>(
      [&](auto& a) {
        a.x = x;
        a.y = wrong;
      },
      "cast: y is");
  v.refused<AccumulateArgs>(
      [&](auto& a) {
        a.x = x;
        a.y = wrong;
      },
      "accumulate: y is");
  v.refused<SgdArgs>(
      [&](auto& a) {
        a.weights = six;
        a.gradients = few;
      },
      "sgd: gradients is");
  v.refused<AdamArgs>(
      [&](auto& a) {
        a.weights = six;
        a.gradients = six;
        a.moment1 = six;
      },
      "adam: moment2 is absent");
  v.refused<EmaArgs>(
      [&](auto& a) {
        a.weights = six;
        a.average = few;
      },
      "ema: average is");
}

TEST_CASE("views of a wrong shape are refused, with what was expected: packed batches") {
  Views v;
  PackedView layout;
  layout.capacity = {4, 2, 2};
  const TensorView x = v.matrix(4, 6), pooled = v.matrix(2, 6);
  v.refused<PoolArgs>(
      [&](auto& a) {
        a.layout = layout;
        a.x = x;
        a.y = x;
      },
      "pool: y is f32 [4, 6], expected f32 [2, 6]");
  v.refused<PoolGradArgs>(
      [&](auto& a) {
        a.layout = layout;
        a.dy = x;
        a.dx = x;
      },
      "pool_grad: dy is");
  v.refused<StackFramesArgs>(
      [&](auto& a) {
        a.stack = 2;
        a.from = layout;
        a.to = layout;
        a.x = x;
        a.y = x;
      },
      "stack_frames: y is f32 [4, 6], expected f32 [4, 12]");

  const std::vector<int32_t> offsets = {0, 0, 0};
  CtcArgs ctc;
  ctc.layout = layout;
  ctc.label_offsets = offsets.data();
  ctc.logits = ctc.grad = x;
  ctc.loss = v.vector(2);
  const auto refused = [&](auto change, const char* why) {
    v.refused<CtcArgs>(
        [&](auto& a) {
          a = ctc;
          change(a);
        },
        why);
  };
  refused([&](CtcArgs& a) { a.logits = v.matrix(3, 6); },
          "ctc: logits is f32 [3, 6], expected f32 [4, 6]");
  refused([&](CtcArgs& a) { a.grad = pooled; }, "ctc: grad is f32 [2, 6], expected f32 [4, 6]");
  refused([&](CtcArgs& a) { a.loss = v.vector(4); }, "ctc: loss is f32 [4], expected 2 elements");
  refused([&](CtcArgs& a) { a.grad_scale = v.vector(1); }, "ctc: grad_scale is");
  refused([&](CtcArgs& a) { a.blank = 6; }, "ctc: blank 6 of 6 classes");
  refused([&](CtcArgs& a) { a.label_offsets = nullptr; }, "ctc: label_offsets are absent");
  refused(
      [&](CtcArgs& a) {
        a.workspace = {reinterpret_cast<std::byte*>(v.memory.data()) + 4, DType::u8, {64}};
      },
      "ctc: the workspace is not aligned to 64 bytes");
  refused([](CtcArgs&) {}, " bytes, needs ");
}

}  // namespace rondo
