#include "kernels/optimizer/optimizer.h"

#include <bit>
#include <cmath>

#include "bench/cases/check/check.h"

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

// Differences of order-1 values: absolute error of a few roundings. The bf16 copy may fall to
// either side of a tie, and near zero has the error of what it is a copy of.
const Tolerance update = {4 * 0x1p-24, 4 * 0x1p-24};
const Tolerance rounded = {update.absolute, 0x1p-8};

void sgd_case(Case& c, SgdArgs& args, int64_t n, double momentum, bool nesterov, bool skip) {
  args.block = block_of(c, skip);
  args.momentum = momentum;
  args.nesterov = nesterov;
  args.weight_decay = 0.01;
  args.learning_rate_scale = 0.5;
  args.weights = c.in_out("weights", {n}, DType::f32, update);
  args.gradients = c.input({n}, DType::f32);
  if (momentum != 0) args.momentum_buffer = c.in_out("momentum", {n}, DType::f32, update);
  args.weights_bf16 = c.in_out("weights_bf16", {n}, DType::bf16, rounded);
  c.work(0, 22.0 * static_cast<double>(n));
}

void adam_case(Case& c, AdamArgs& args, int64_t n, bool decoupled, bool skip, bool narrow) {
  args.block = block_of(c, skip);
  args.decoupled = decoupled;
  args.weight_decay = 0.1;
  args.beta2 = 0.98;
  args.weights = c.in_out("weights", {n}, DType::f32, update);
  args.gradients = c.input({n}, DType::f32);
  args.moment1 = c.in_out("moment1", {n}, DType::f32, update);
  args.moment2 = c.in_out("moment2", {n}, DType::f32, update, {Fill::uniform, 0, 1});
  if (narrow) args.weights_bf16 = c.in_out("weights_bf16", {n}, DType::bf16, rounded);
  c.work(0, (narrow ? 30.0 : 28.0) * static_cast<double>(n));
}

void ema_case(Case& c, EmaArgs& args, int64_t n, bool skip) {
  args.block = block_of(c, skip);
  args.weights = c.input({n}, DType::f32);
  args.average = c.in_out("average", {n}, DType::f32, update);
  c.work(0, 12.0 * static_cast<double>(n));
}

void prepare_case(Case& c, OptimizerPrepareArgs& args, double sum_squares) {
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
}

}  // namespace

void optimizer_cases(Suite& suite) {
  for (const auto& [n, skip] : every({0, 1, 7, 31, 32, 33, 65, 40001}, {false, true})) {
    const std::string label = str(n, skip ? "/skip" : "");
    for (const auto& [momentum, nesterov] : every({0.0, 0.9}, {false, true}))
      suite.add(str("momentum ", momentum, nesterov ? " nesterov/" : "/", label), sgd_case, n,
                momentum, nesterov, skip);
    suite.add("adam/" + label, adam_case, n, false, skip, n % 2 == 1);
    suite.add("adamw/" + label, adam_case, n, true, skip, n % 2 == 1);
    suite.add(label, ema_case, n, skip);
  }
  for (double s : {0.0, 1e-4, 1e6, infinity, nan})
    suite.add(str("sum_squares ", s), prepare_case, s);
  const int64_t n = 8 << 20;
  suite.add_bench(str(n), sgd_case, n, 0.9, true, false);
  suite.add_bench(str("adamw/", n), adam_case, n, true, false, false);
  suite.add_bench(str(n), ema_case, n, false);
  // A few numbers: what a call costs.
  suite.add_bench("one block", prepare_case, 1e6);
}

}  // namespace rondo::check
