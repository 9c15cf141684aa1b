#include <bit>
#include <cmath>
#include <limits>

#include "bench/cases/check/check.h"
#include "kernels/optimizer/optimizer.h"

namespace rondo::check {
namespace {

// An ordinary block after `steps` steps.
const OptimizerBlock* block_of(Case& c, bool skip) {
  OptimizerBlock b;
  b.learning_rate = 0.01;
  b.ema_decay = 0.99;
  b.steps = 7;
  b.grad_scale = 0.37;
  b.bias_correction1 = 1 - std::pow(0.9, b.steps);
  b.bias_correction2 = 1 - std::pow(0.98, b.steps);
  b.skip = skip ? 1 : 0;
  const auto words = std::bit_cast<std::array<uint64_t, optimizer_block_doubles>>(b);
  return reinterpret_cast<const OptimizerBlock*>(c.longs({words.begin(), words.end()}));
}

constexpr Fill positive = {Fill::uniform, 0, 1};

// Differences of order-1 values: absolute error of a few roundings. The bf16 copy may fall to
// either side of a tie, and near zero has the error of what it is a copy of.
const Tolerance update = {4 * 0x1p-24, 4 * 0x1p-24};
const Tolerance rounded = {update.absolute, 0x1p-8};

void sgd_case(Case& c, int64_t n, double momentum, bool nesterov, double decay, bool skip) {
  SgdArgs args;
  args.block = block_of(c, skip);
  args.momentum = momentum;
  args.nesterov = nesterov;
  args.weight_decay = decay;
  args.learning_rate_scale = 0.5;
  args.weights = c.in_out("weights", {n}, DType::f32, update);
  args.gradients = c.input({n}, DType::f32);
  if (momentum != 0) args.momentum_buffer = c.in_out("momentum", {n}, DType::f32, update);
  args.weights_bf16 = c.in_out("weights_bf16", {n}, DType::bf16, rounded);
  c.work(0, 22.0 * static_cast<double>(n));
  c.run(args);
}

void adam_case(Case& c, int64_t n, bool decoupled, double decay, bool skip, bool narrow) {
  AdamArgs args;
  args.block = block_of(c, skip);
  args.decoupled = decoupled;
  args.weight_decay = decay;
  args.beta2 = 0.98;
  args.weights = c.in_out("weights", {n}, DType::f32, update);
  args.gradients = c.input({n}, DType::f32);
  args.moment1 = c.in_out("moment1", {n}, DType::f32, update);
  args.moment2 = c.in_out("moment2", {n}, DType::f32, update, positive);
  if (narrow) args.weights_bf16 = c.in_out("weights_bf16", {n}, DType::bf16, rounded);
  c.work(0, (narrow ? 30.0 : 28.0) * static_cast<double>(n));
  c.run(args);
}

void ema_case(Case& c, int64_t n, bool skip) {
  EmaArgs args;
  args.block = block_of(c, skip);
  args.weights = c.input({n}, DType::f32);
  args.average = c.in_out("average", {n}, DType::f32, update);
  c.work(0, 12.0 * static_cast<double>(n));
  c.run(args);
}

void prepare_case(Case& c, double sum_squares) {
  OptimizerPrepareArgs args;
  // CUDA's pow is off by 2 ulp at most, of values next to 1; the bias corrections are what is left
  // of 1 then.
  const Tolerance tolerance = {4 * 0x1p-53, 0x1p-48};
  const TensorView block =
      c.in_out("block", {optimizer_block_doubles}, DType::f64, tolerance, {Fill::uniform, 0.1, 9});
  args.block = static_cast<OptimizerBlock*>(block.data);
  args.sum_squares = c.input_values({1}, DType::f64, {sum_squares}).as<double>();
  args.beta1 = 0.9;
  args.beta2 = 0.999;
  c.work(0, 8.0 * (2 * optimizer_block_doubles + 1));
  c.run(args);
}

}  // namespace

void optimizer_cases(Suite& suite) {
  for (int64_t n : {0, 1, 7, 31, 32, 33, 65, 40001}) {
    for (bool skip : {false, true}) {
      const std::string label = str(n, skip ? "/skip" : "");
      for (double momentum : {0.0, 0.9}) {
        for (bool nesterov : {false, true}) {
          suite.add<SgdArgs>(str("momentum ", momentum, nesterov ? " nesterov/" : "/", label),
                             [=](Case& c) { sgd_case(c, n, momentum, nesterov, 0.01, skip); });
        }
      }
      for (bool decoupled : {false, true}) {
        suite.add<AdamArgs>(str(decoupled ? "adamw/" : "adam/", label),
                            [=](Case& c) { adam_case(c, n, decoupled, 0.1, skip, n % 2 == 1); });
      }
      suite.add<EmaArgs>(label, [=](Case& c) { ema_case(c, n, skip); });
    }
  }
  for (double s : {0.0, 1e-4, 1e6, std::numeric_limits<double>::infinity(),
                   std::numeric_limits<double>::quiet_NaN()}) {
    suite.add<OptimizerPrepareArgs>(str("sum_squares ", s), [=](Case& c) { prepare_case(c, s); });
  }
  const int64_t n = 8 << 20;
  suite.add_bench<SgdArgs>(str(n), [=](Case& c) { sgd_case(c, n, 0.9, true, 0.01, false); });
  suite.add_bench<AdamArgs>(str("adamw/", n),
                            [=](Case& c) { adam_case(c, n, true, 0.1, false, false); });
  suite.add_bench<EmaArgs>(str(n), [=](Case& c) { ema_case(c, n, false); });
  // A few numbers: what a call costs.
  suite.add_bench<OptimizerPrepareArgs>("one block", [](Case& c) { prepare_case(c, 1e6); });
}

}  // namespace rondo::check
