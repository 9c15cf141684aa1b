#include "engine/optimizer.h"

#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

struct SlotSpec {
  const char* name;
  bool wanted;
};

std::vector<SlotSpec> slots_of(const OptimizerOptions& o) {
  const bool adam = o.kind != OptimizerOptions::sgd;
  return {{"momentum", !adam && o.momentum != 0},
          {"first_moment", adam},
          {"second_moment", adam},
          {"average", o.ema_decay > 0}};
}

// The scalars' memory: the kernels' block, the sum of squares, the reduction's scratch.
constexpr size_t block_bytes = (sizeof(OptimizerBlock) + 63) / 64 * 64;
constexpr size_t scalar_bytes = block_bytes + 64 + reduce_workspace_bytes;

}  // namespace

size_t Optimizer::state_bytes(const OptimizerOptions& options, int64_t flat_size) {
  size_t n = 0;
  for (const SlotSpec& s : slots_of(options)) n += s.wanted ? 1 : 0;
  return n * static_cast<size_t>(flat_size) * sizeof(float) + scalar_bytes;
}

Optimizer::Optimizer(const OptimizerOptions& options, Parameters& parameters, int64_t frozen)
    : options_(options), parameters_(&parameters), frozen_(frozen) {
  if (parameters.dtype() != DType::f32) return;  // f64 graphs check gradients; they do not train
  Device& device = parameters.device();
  const int64_t n = parameters.flat_size();
  memory_ = Buffer(device, state_bytes(options, n) - scalar_bytes, "optimizer state");
  scalars_ = Buffer(device, scalar_bytes, "optimizer state");
  Stream stream = device.make_stream();
  device.fill_bytes(stream, memory_.data(), 0, memory_.bytes());
  device.fill_bytes(stream, scalars_.data(), 0, scalars_.bytes());
  stream.synchronize();
  auto* at = memory_.as<float>();
  for (const SlotSpec& s : slots_of(options)) {
    if (!s.wanted) continue;
    slots_.push_back({s.name, TensorView(at, DType::f32, {n})});
    at += n;
  }
  write_block();
}

OptimizerBlock* Optimizer::block() const {
  RONDO_CHECK(scalars_.data() != nullptr, "an f64 session cannot train");
  return reinterpret_cast<OptimizerBlock*>(scalars_.as<uint8_t>());
}

double* Optimizer::squares() const {
  return reinterpret_cast<double*>(scalars_.as<uint8_t>() + block_bytes);
}

double* Optimizer::inverse_count() const {
  return scalars_.data() ? &block()->inverse_count : nullptr;
}

// What the kernels find there before the first step, or after the host has changed it.
void Optimizer::write_block() {
  OptimizerBlock host;
  host.learning_rate = options_.learning_rate;
  host.max_norm = options_.clip_norm;
  host.ema_decay = options_.ema_decay;
  host.steps = static_cast<double>(steps_);
  Device& device = parameters_->device();
  Stream stream = device.make_stream();
  device.copy(stream, block(), &host, sizeof host);
  stream.synchronize();
}

void Optimizer::set_steps(int64_t steps) {
  steps_ = steps;
  if (scalars_.data()) write_block();
}

TensorView Optimizer::trained(const TensorView& flat) const {
  if (!flat) return {};
  return {flat.as<float>() + frozen_, DType::f32, {flat.numel() - frozen_}};
}

TensorView Optimizer::slot(const char* name) const {
  for (const Slot& s : slots_) {
    if (s.name == name) return s.view;
  }
  return {};
}

Optimizer::Result Optimizer::apply(const Context& context, double count) {
  RONDO_CHECK(count > 0, "gradients of ", count, " sequences");
  Staging staging;
  enqueue(context, staging, count);
  context.stream->synchronize();
  return finish(staging);
}

void Optimizer::enqueue(const Context& context, Staging& staging, double count) {
  send(context, staging, count);
  update(context);
  fetch(context, staging);
}

void Optimizer::send(const Context& context, Staging& staging, double count) {
  Device& device = *context.device;
  OptimizerBlock* on_device = block();
  staging.in.learning_rate = options_.learning_rate;
  device.copy(*context.stream, &on_device->learning_rate, &staging.in.learning_rate,
              sizeof(double));
  if (count > 0) {
    staging.in.inverse_count = 1 / count;
    device.copy(*context.stream, &on_device->inverse_count, &staging.in.inverse_count,
                sizeof(double));
  }
  if (sum_of_squares_) {
    context.stream->synchronize();
    staging.squares = sum_of_squares_();
    device.copy(*context.stream, squares(), &staging.squares, sizeof(double));
  }
}

void Optimizer::fetch(const Context& context, Staging& staging) {
  context.device->copy(*context.stream, &staging.out, block(), sizeof(OptimizerBlock));
}

Optimizer::Result Optimizer::finish(const Staging& staging) {
  steps_ = static_cast<int64_t>(staging.out.steps);
  return {staging.out.grad_norm, staging.out.skip != 0};
}

void Optimizer::update(const Context& context) {
  const OptimizerOptions& o = options_;
  const bool adam = o.kind != OptimizerOptions::sgd;
  if (!sum_of_squares_) {
    SumSquaresArgs a;
    a.x = trained(parameters_->gradients());
    a.out = TensorView(squares(), DType::f64, {1});
    a.workspace = TensorView(scalars_.as<uint8_t>() + block_bytes + 64, DType::u8,
                             {static_cast<int64_t>(reduce_workspace_bytes)});
    run(context, a);
  }
  run(context, OptimizerPrepareArgs{block(), squares(), adam ? o.beta1 : 0, adam ? o.beta2 : 0});
  if (adam) {
    AdamArgs a;
    a.block = block();
    a.weights = trained(parameters_->weights());
    a.gradients = trained(parameters_->gradients());
    a.moment1 = trained(slot("first_moment"));
    a.moment2 = trained(slot("second_moment"));
    a.beta1 = o.beta1;
    a.beta2 = o.beta2;
    a.epsilon = o.epsilon;
    a.weight_decay = o.weight_decay;
    a.decoupled = o.kind == OptimizerOptions::adamw;
    run(context, a);
  } else {
    SgdArgs a;
    a.block = block();
    a.weights = trained(parameters_->weights());
    a.gradients = trained(parameters_->gradients());
    a.momentum_buffer = trained(slot("momentum"));
    a.momentum = o.momentum;
    a.nesterov = o.nesterov;
    a.weight_decay = o.weight_decay;
    run(context, a);
  }
  if (averages()) {
    run(context, EmaArgs{block(), trained(parameters_->weights()), trained(slot("average"))});
  }
}

void Optimizer::reset_average(const Context& context) {
  const TensorView average = slot("average");
  context.device->copy(*context.stream, average.data, parameters_->weights().data, average.bytes());
  context.stream->synchronize();
}

void Optimizer::swap_average() {
  const TensorView average = slot("average"), weights = parameters_->weights();
  RONDO_CHECK(average, "the optimizer keeps no average");
  Device& device = parameters_->device();
  Buffer temporary(device, average.bytes(), "exchange of averaged weights");
  Stream stream = device.make_stream();
  device.copy(stream, temporary.data(), average.data, average.bytes());
  device.copy(stream, average.data, weights.data, average.bytes());
  device.copy(stream, weights.data, temporary.data(), average.bytes());
  stream.synchronize();
}

}  // namespace rondo
