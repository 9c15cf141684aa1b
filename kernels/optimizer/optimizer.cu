// Optimiser steps: one launch per flat array, vector by vector. All that changes between steps is
// read from the block in device memory, by every thread, so a captured graph stays valid.
#include "kernels/base/check_view.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/simt/memory_bound.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr int N = wide<float>;

__global__ void prepare(OptimizerBlock* block, const double* sum_squares, double beta1,
                        double beta2) {
  OptimizerBlock& b = *block;
  b.grad_norm = sqrt(*sum_squares) * b.inverse_count;
  b.skip = b.grad_norm < static_cast<double>(INFINITY) ? 0 : 1;
  if (b.skip != 0) {
    b.skipped_steps += 1;
    b.grad_scale = 0;
    return;
  }
  const double clip = b.max_norm > 0 ? fmin(1.0, b.max_norm / (b.grad_norm + 1e-6)) : 1;
  b.grad_scale = b.inverse_count * clip;
  b.steps += 1;
  b.bias_correction1 = 1 - pow(beta1, b.steps);
  b.bias_correction2 = 1 - pow(beta2, b.steps);
}

// Factors are computed in double and rounded once, as PyTorch does.
__device__ float factor(double x) { return static_cast<float>(x); }

// The new weights, and their bf16 copy where there is one.
template <class Part>
__device__ void put_weights(float* w, bf16* narrow, int64_t i, Part chunk,
                            const Floats<Part::n>& x) {
  chunk.put(w + i, x);
  if (narrow) chunk.put(narrow + i, x);
}

struct Sgd {
  const OptimizerBlock* block;
  float* w;
  const float* g;
  float* buffer;  // nullptr: no momentum
  bf16* narrow;
  int64_t n;
  double momentum, weight_decay, learning_rate_scale;
  bool nesterov, vectors;
};

__global__ void sgd(Sgd a) {
  const OptimizerBlock& b = *a.block;
  if (b.skip != 0) return;
  const float rate = factor(b.learning_rate * a.learning_rate_scale);
  const float scale = factor(b.grad_scale), decay = factor(a.weight_decay);
  const float momentum = factor(a.momentum);
  for_elements<N>(a.n, a.vectors, [&](int64_t i, auto chunk) {
    auto w = chunk.get(a.w + i);
    auto step = chunk.get(a.g + i);
    for (int k = 0; k < chunk.n; ++k) step[k] = step[k] * scale + decay * w[k];
    if (a.buffer) {
      auto updated = chunk.get(a.buffer + i);
      for (int k = 0; k < chunk.n; ++k) {
        updated[k] = momentum * updated[k] + step[k];
        step[k] = a.nesterov ? step[k] + momentum * updated[k] : updated[k];
      }
      chunk.put(a.buffer + i, updated);
    }
    for (int k = 0; k < chunk.n; ++k) w[k] -= rate * step[k];
    put_weights(a.w, a.narrow, i, chunk, w);
  });
}

struct Adam {
  const OptimizerBlock* block;
  float* w;
  const float* g;
  float *m, *v;
  bf16* narrow;
  int64_t n;
  double beta1, beta2, epsilon, weight_decay, learning_rate_scale;
  bool decoupled, vectors;
};

__global__ void adam(Adam a) {
  const OptimizerBlock& b = *a.block;
  if (b.skip != 0) return;
  const double learning_rate = b.learning_rate * a.learning_rate_scale;
  const float scale = factor(b.grad_scale);
  const float shrink = factor(a.decoupled ? 1 - learning_rate * a.weight_decay : 1);
  const float decay = factor(a.decoupled ? 0 : a.weight_decay);
  const float gain1 = factor(1 - a.beta1), beta2 = factor(a.beta2), gain2 = factor(1 - a.beta2);
  const float rate = factor(learning_rate / b.bias_correction1);
  const float root_correction = sqrtf(factor(b.bias_correction2)), epsilon = factor(a.epsilon);
  for_elements<N>(a.n, a.vectors, [&](int64_t i, auto chunk) {
    auto w = chunk.get(a.w + i);
    const auto g = chunk.get(a.g + i);
    auto m = chunk.get(a.m + i);
    auto v = chunk.get(a.v + i);
    for (int k = 0; k < chunk.n; ++k) {
      const float step = g[k] * scale + decay * w[k];
      m[k] += gain1 * (step - m[k]);
      v[k] = beta2 * v[k] + gain2 * step * step;
      w[k] = w[k] * shrink - rate * m[k] / (sqrtf(v[k]) / root_correction + epsilon);
    }
    chunk.put(a.m + i, m);
    chunk.put(a.v + i, v);
    put_weights(a.w, a.narrow, i, chunk, w);
  });
}

__global__ void ema(const OptimizerBlock* block, float* average, const float* w, int64_t n,
                    bool vectors) {
  if (block->skip != 0) return;
  const float decay = factor(block->ema_decay), gain = factor(1 - block->ema_decay);
  for_elements<N>(n, vectors, [&](int64_t i, auto chunk) {
    auto x = chunk.get(average + i);
    const auto y = chunk.get(w + i);
    for (int k = 0; k < chunk.n; ++k) x[k] = decay * x[k] + gain * y[k];
    chunk.put(average + i, x);
  });
}

}  // namespace

void optimizer_prepare_gpu(const Context& context, const OptimizerPrepareArgs& a) {
  launch(context, {.kernel = "optimizer_prepare", .grid = {1}, .block = {1}}, prepare, a.block,
         a.sum_squares, a.beta1, a.beta2);
}

void sgd_gpu(const Context& context, const SgdArgs& args) {
  const int64_t n = args.weights.numel();
  check_elements("sgd", "gradients", args.gradients, n);
  if (args.momentum != 0) check_elements("sgd", "momentum_buffer", args.momentum_buffer, n);
  if (args.weights_bf16) check_elements("sgd", "weights_bf16", args.weights_bf16, n);
  Sgd a = {args.block,
           args.weights.as<float>(),
           args.gradients.as<float>(),
           args.momentum != 0 ? args.momentum_buffer.as<float>() : nullptr,
           args.weights_bf16.as<bf16>(),
           n,
           args.momentum,
           args.weight_decay,
           args.learning_rate_scale,
           args.nesterov,
           false};
  if (a.n == 0) return;
  a.vectors = aligned<N>(a.w, a.g, a.buffer, a.narrow);
  launch(context, elements_launch("sgd", a.n, N), sgd, a);
}

void adam_gpu(const Context& context, const AdamArgs& args) {
  const int64_t n = args.weights.numel();
  check_elements("adam", "gradients", args.gradients, n);
  check_elements("adam", "moment1", args.moment1, n);
  check_elements("adam", "moment2", args.moment2, n);
  if (args.weights_bf16) check_elements("adam", "weights_bf16", args.weights_bf16, n);
  Adam a = {args.block,
            args.weights.as<float>(),
            args.gradients.as<float>(),
            args.moment1.as<float>(),
            args.moment2.as<float>(),
            args.weights_bf16.as<bf16>(),
            n,
            args.beta1,
            args.beta2,
            args.epsilon,
            args.weight_decay,
            args.learning_rate_scale,
            args.decoupled,
            false};
  if (a.n == 0) return;
  a.vectors = aligned<N>(a.w, a.g, a.m, a.v, a.narrow);
  launch(context, elements_launch("adam", a.n, N), adam, a);
}

void ema_gpu(const Context& context, const EmaArgs& a) {
  const int64_t n = a.weights.numel();
  check_elements("ema", "average", a.average, n);
  if (n == 0) return;
  const float* w = a.weights.as<float>();
  float* average = a.average.as<float>();
  launch(context, elements_launch("ema", n, N), ema, a.block, average, w, n,
         aligned<N>(average, w));
}

}  // namespace rondo::RONDO_GPU
