#include <cmath>

#include "kernels/optimizer/optimizer.h"

namespace rondo {
namespace {

// f(T{}) for the types of weights: f32 or f64.
template <class F>
void visit_weights(DType dtype, F&& f) {
  RONDO_CHECK(dtype == DType::f32 || dtype == DType::f64, "weights are ", name_of(dtype));
  if (dtype == DType::f32) return f(float{});
  f(double{});
}

}  // namespace

void optimizer_prepare_ref(const Context&, const OptimizerPrepareArgs& a) {
  OptimizerBlock& b = *a.block;
  b.grad_norm = std::sqrt(*a.sum_squares) * b.inverse_count;
  b.skip = std::isfinite(b.grad_norm) ? 0 : 1;
  if (b.skip != 0) {
    b.skipped_steps += 1;
    b.grad_scale = 0;
    return;
  }
  const double clip = b.max_norm > 0 ? std::fmin(1.0, b.max_norm / (b.grad_norm + 1e-6)) : 1;
  b.grad_scale = b.inverse_count * clip;
  b.steps += 1;
  b.bias_correction1 = 1 - std::pow(a.beta1, b.steps);
  b.bias_correction2 = 1 - std::pow(a.beta2, b.steps);
}

void sgd_ref(const Context&, const SgdArgs& a) {
  const OptimizerBlock& b = *a.block;
  if (b.skip != 0) return;
  const double rate = b.learning_rate * a.learning_rate_scale;
  visit_weights(a.weights.dtype, [&]<class T>(T) {
    T* w = a.weights.as<T>();
    for (int64_t i = 0; i < a.weights.numel(); ++i) {
      double g = static_cast<double>(a.gradients.as<T>()[i]) * b.grad_scale;
      g += a.weight_decay * static_cast<double>(w[i]);
      if (a.momentum != 0) {
        T& buffer = a.momentum_buffer.as<T>()[i];
        const double updated = a.momentum * static_cast<double>(buffer) + g;
        buffer = static_cast<T>(updated);
        g = a.nesterov ? g + a.momentum * updated : updated;
      }
      w[i] = static_cast<T>(static_cast<double>(w[i]) - rate * g);
      if (a.weights_bf16) a.weights_bf16.as<bf16>()[i] = bf16(w[i]);
    }
  });
}

void adam_ref(const Context&, const AdamArgs& a) {
  const OptimizerBlock& b = *a.block;
  if (b.skip != 0) return;
  const double rate = b.learning_rate * a.learning_rate_scale;
  const double root_correction = std::sqrt(b.bias_correction2);
  visit_weights(a.weights.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < a.weights.numel(); ++i) {
      double w = static_cast<double>(a.weights.as<T>()[i]);
      double g = static_cast<double>(a.gradients.as<T>()[i]) * b.grad_scale;
      if (a.decoupled) {
        w -= rate * a.weight_decay * w;
      } else {
        g += a.weight_decay * w;
      }
      double m = static_cast<double>(a.moment1.as<T>()[i]);
      double v = static_cast<double>(a.moment2.as<T>()[i]);
      m += (1 - a.beta1) * (g - m);
      v = a.beta2 * v + (1 - a.beta2) * g * g;
      w -= rate / b.bias_correction1 * m / (std::sqrt(v) / root_correction + a.epsilon);
      a.moment1.as<T>()[i] = static_cast<T>(m);
      a.moment2.as<T>()[i] = static_cast<T>(v);
      a.weights.as<T>()[i] = static_cast<T>(w);
      if (a.weights_bf16) a.weights_bf16.as<bf16>()[i] = bf16(a.weights.as<T>()[i]);
    }
  });
}

void ema_ref(const Context&, const EmaArgs& a) {
  if (a.block->skip != 0) return;
  const double decay = a.block->ema_decay;
  visit_weights(a.weights.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < a.weights.numel(); ++i) {
      T& average = a.average.as<T>()[i];
      const double w = static_cast<double>(a.weights.as<T>()[i]);
      average = static_cast<T>(decay * static_cast<double>(average) + (1 - decay) * w);
    }
  });
}

}  // namespace rondo
