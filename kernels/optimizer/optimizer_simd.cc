// Compiled once per instruction set; see kernels/base/cpu/simd.h.
#include "kernels/base/cpu/simd_rows.h"
#include "kernels/optimizer/optimizer.h"

namespace rondo::RONDO_ISA {
namespace {

// Factors are computed in double and rounded once, as PyTorch does.
vf factor(double x) { return broadcast(static_cast<float>(x)); }

void put_weights(float* w, uint16_t* narrow, int64_t i, vf value, auto part) {
  part.put(w + i, value);
  if (narrow) part.put(narrow + i, value);
}

}  // namespace

void sgd_cpu(const Context& context, const SgdArgs& a) {
  const OptimizerBlock& b = *a.block;
  if (b.skip != 0) return;
  float* w = a.weights.as<float>();
  const float* g = a.gradients.as<float>();
  float* buffer = a.momentum != 0 ? a.momentum_buffer.as<float>() : nullptr;
  auto* narrow = static_cast<uint16_t*>(a.weights_bf16.data);
  const vf rate = factor(b.learning_rate * a.learning_rate_scale);
  const vf scale = factor(b.grad_scale), decay = factor(a.weight_decay);
  const vf momentum = factor(a.momentum);
  for_vectors_threaded(*context.pool, a.weights.numel(), [&](int64_t i, auto part) {
    const vf old = part.get(w + i);
    vf step = part.get(g + i) * scale + decay * old;
    if (buffer) {
      const vf updated = momentum * part.get(buffer + i) + step;
      part.put(buffer + i, updated);
      step = a.nesterov ? step + momentum * updated : updated;
    }
    put_weights(w, narrow, i, old - rate * step, part);
  });
}

void adam_cpu(const Context& context, const AdamArgs& a) {
  const OptimizerBlock& b = *a.block;
  if (b.skip != 0) return;
  float* w = a.weights.as<float>();
  const float* g = a.gradients.as<float>();
  float* m = a.moment1.as<float>();
  float* v = a.moment2.as<float>();
  auto* narrow = static_cast<uint16_t*>(a.weights_bf16.data);
  const double learning_rate = b.learning_rate * a.learning_rate_scale;
  const vf scale = factor(b.grad_scale);
  const vf shrink = factor(a.decoupled ? 1 - learning_rate * a.weight_decay : 1);
  const vf decay = factor(a.decoupled ? 0 : a.weight_decay);
  const vf gain1 = factor(1 - a.beta1), beta2 = factor(a.beta2), gain2 = factor(1 - a.beta2);
  const vf rate = factor(learning_rate / b.bias_correction1);
  const vf root_correction = sqrt(factor(b.bias_correction2)), epsilon = factor(a.epsilon);
  for_vectors_threaded(*context.pool, a.weights.numel(), [&](int64_t i, auto part) {
    const vf old = part.get(w + i);
    const vf step = part.get(g + i) * scale + decay * old;
    const vf moment1 = part.get(m + i);
    const vf new1 = moment1 + gain1 * (step - moment1);
    const vf new2 = beta2 * part.get(v + i) + gain2 * step * step;
    part.put(m + i, new1);
    part.put(v + i, new2);
    put_weights(w, narrow, i, old * shrink - rate * new1 / (sqrt(new2) / root_correction + epsilon),
                part);
  });
}

void ema_cpu(const Context& context, const EmaArgs& a) {
  if (a.block->skip != 0) return;
  const float* w = a.weights.as<float>();
  float* average = a.average.as<float>();
  const vf decay = factor(a.block->ema_decay), gain = factor(1 - a.block->ema_decay);
  for_vectors_threaded(*context.pool, a.weights.numel(), [&](int64_t i, auto part) {
    part.put(average + i, decay * part.get(average + i) + gain * part.get(w + i));
  });
}

}  // namespace rondo::RONDO_ISA
