// Optimisers against PyTorch's numbers (tests/golden/optimizer_golden.py), step by step.
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "tests/kernels/optimizer_golden.h"

#include <cmath>

#include "kernels/base/dispatch.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

// Weights, states and block of one optimiser, of type T, on one backend.
template <class T>
struct Optimizer {
  const OptimizerGolden& golden;
  Backend backend;
  std::vector<T> weights, gradients, state1, state2;
  std::vector<bf16> narrow;
  OptimizerBlock block;
  Stream stream = cpu_device().make_stream();
  ThreadPool pool{2};

  Optimizer(const OptimizerGolden& g, Backend backend_)
      : golden(g),
        backend(backend_),
        weights(g.start.begin(), g.start.end()),
        gradients(weights.size()),
        state1(weights.size()),
        state2(weights.size()),
        narrow(weights.size()) {
    block.max_norm = g.max_norm;
    block.inverse_count = 1.0 / optimizer_golden_count;
  }

  TensorView view(std::vector<T>& v) {
    return {v.data(), DTypeOf<T>::value, {static_cast<int64_t>(v.size())}};
  }

  void step(double learning_rate) {
    const Context context = {backend, &cpu_device(), &stream, &pool};
    double squares = NAN;
    SumSquaresArgs sum;
    sum.x = view(gradients);
    sum.out = {&squares, DType::f64, {1}};
    run(context, sum);
    block.learning_rate = learning_rate;
    const double beta1 = golden.adam ? 0.9 : 0, beta2 = golden.adam ? 0.98 : 0;
    run(context, OptimizerPrepareArgs{&block, &squares, beta1, beta2});
    const TensorView rounded = {narrow.data(), DType::bf16, {static_cast<int64_t>(narrow.size())}};
    if (golden.adam) {
      AdamArgs a;
      a.block = &block;
      a.weights = view(weights), a.gradients = view(gradients);
      a.moment1 = view(state1), a.moment2 = view(state2);
      a.weights_bf16 = rounded;
      a.beta2 = beta2;
      a.weight_decay = golden.weight_decay;
      a.decoupled = golden.decoupled;
      run(context, a);
    } else {
      SgdArgs a;
      a.block = &block;
      a.weights = view(weights), a.gradients = view(gradients);
      if (golden.momentum != 0) a.momentum_buffer = view(state1);
      a.weights_bf16 = rounded;
      a.momentum = golden.momentum;
      a.nesterov = golden.nesterov;
      a.weight_decay = golden.weight_decay;
      run(context, a);
    }
  }
};

template <class T>
void check_against_golden(Backend backend, double tolerance) {
  for (const OptimizerGolden& g : optimizer_golden) {
    INFO(g.name);
    Optimizer<T> o(g, backend);
    const size_t n = g.start.size();
    for (int k = 0; k < optimizer_golden_steps; ++k) {
      const size_t at = static_cast<size_t>(k) * n;
      for (size_t i = 0; i < n; ++i) o.gradients[i] = static_cast<T>(g.gradients[at + i]);
      o.step(0.1 / (k + 1));
      INFO("step " << k);
      CHECK(o.block.steps == k + 1);
      CHECK(std::abs(o.block.grad_norm - g.norms[static_cast<size_t>(k)]) <= tolerance);
      for (size_t i = 0; i < n; ++i) {
        INFO("weight " << i << ": " << o.weights[i] << ", PyTorch " << g.after[at + i]);
        REQUIRE(std::abs(static_cast<double>(o.weights[i]) - g.after[at + i]) <= tolerance);
        REQUIRE(o.narrow[i].bits == bf16(static_cast<float>(o.weights[i])).bits);
      }
    }
  }
}

}  // namespace

TEST_CASE("sgd, adam and adamw make PyTorch's steps: reference in double") {
  check_against_golden<double>(Backend::ref, 1e-13);
}

TEST_CASE("sgd, adam and adamw make PyTorch's steps: cpu in single precision") {
  // Four steps on weights of order 1, a few roundings each.
  check_against_golden<float>(Backend::cpu, 32 * 0x1p-24);
}

TEST_CASE("a gradient that is not finite changes nothing but the count of skipped steps") {
  for (const OptimizerGolden& g : optimizer_golden) {
    INFO(g.name);
    Optimizer<float> o(g, Backend::cpu);
    for (size_t i = 0; i < o.gradients.size(); ++i) o.gradients[i] = 0.5f;
    o.step(0.1);
    const auto weights = o.weights, state1 = o.state1, state2 = o.state2;
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      o.gradients[2] = bad;
      o.step(0.1);
      CHECK(o.block.skip == 1);
    }
    CHECK(o.weights == weights);
    CHECK(o.state1 == state1);
    CHECK(o.state2 == state2);
    CHECK(o.block.steps == 1);
    CHECK(o.block.skipped_steps == 3);
    o.gradients[2] = 0.5f;
    o.step(0.1);
    CHECK(o.block.skip == 0);
    CHECK(o.block.steps == 2);
    CHECK(o.weights != weights);
  }
}

TEST_CASE("the moving average follows the weights, but not over skipped steps") {
  std::vector<float> weights = {1, 2, 3}, average = {0, 0, 8};
  OptimizerBlock block;
  block.ema_decay = 0.75;
  Stream stream = cpu_device().make_stream();
  ThreadPool pool(1);
  const EmaArgs args = {&block, TensorView(weights.data(), DType::f32, {3}),
                        TensorView(average.data(), DType::f32, {3})};
  for (Backend backend : {Backend::ref, Backend::cpu}) {
    average = {0, 0, 8};
    run(Context{backend, &cpu_device(), &stream, &pool}, args);
    CHECK(average == std::vector<float>{0.25f, 0.5f, 6.75f});
    block.skip = 1;
    run(Context{backend, &cpu_device(), &stream, &pool}, args);
    CHECK(average == std::vector<float>{0.25f, 0.5f, 6.75f});
    block.skip = 0;
  }
}
