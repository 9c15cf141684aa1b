// The definition in log space: full alpha and beta lattices, one frame and state at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ctc/ctc_impl.h"

namespace rondo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  if (a == -infinity) return b;
  if (b == -infinity) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

template <class T>
struct Sequence {
  const CtcArgs& args;
  int32_t n, frames, blank;
  std::span<const int32_t> labels;
  int64_t classes, states;
  std::vector<double> normaliser;   // [frames]: log-sum-exp of the row
  std::vector<double> alpha, beta;  // [frames, states]; beta without the emission at its frame

  Sequence(const CtcArgs& a, int32_t sequence)
      : args(a),
        n(sequence),
        frames(a.layout.lengths[sequence]),
        blank(a.blank),
        labels(a.labels + a.label_offsets[sequence], a.labels + a.label_offsets[sequence + 1]),
        classes(a.logits.dim(1)),
        states(2 * static_cast<int64_t>(labels.size()) + 1) {}

  int64_t element(int32_t t, int64_t v) const {
    return (static_cast<int64_t>(args.layout.row_offsets[t]) + n) * classes + v;
  }
  double logit(int32_t t, int64_t v) const {
    return static_cast<double>(args.logits.as<T>()[element(t, v)]);
  }
  double log_probability(int32_t t, int64_t v) const {
    return logit(t, v) - normaliser[static_cast<size_t>(t)];
  }
  int64_t class_of(int64_t s) const {
    return s % 2 == 0 ? blank : labels[static_cast<size_t>(s / 2)];
  }
  // From s to s + 2: between two labels that differ.
  bool may_skip(int64_t s) const { return s % 2 == 1 && class_of(s) != class_of(s + 2); }
  size_t at(int32_t t, int64_t s) const { return static_cast<size_t>(t * states + s); }

  void normalise() {
    normaliser.assign(static_cast<size_t>(frames), 0.0);
    if (args.input == CtcInput::log_softmax) return;
    for (int32_t t = 0; t < frames; ++t) {
      double top = -infinity, sum = 0;
      for (int64_t v = 0; v < classes; ++v) top = std::max(top, logit(t, v));
      for (int64_t v = 0; v < classes; ++v) sum += std::exp(logit(t, v) - top);
      normaliser[static_cast<size_t>(t)] = top + std::log(sum);
    }
  }

  void forward() {
    alpha.assign(static_cast<size_t>(frames * states), -infinity);
    for (int32_t t = 0; t < frames; ++t) {
      for (int64_t s = 0; s < states; ++s) {
        double sum = -infinity;
        if (t == 0) {
          if (s < 2) sum = 0;
        } else {
          sum = alpha[at(t - 1, s)];
          if (s >= 1) sum = log_add(sum, alpha[at(t - 1, s - 1)]);
          if (s >= 2 && may_skip(s - 2)) sum = log_add(sum, alpha[at(t - 1, s - 2)]);
        }
        alpha[at(t, s)] = sum + log_probability(t, class_of(s));
      }
    }
  }

  void backward() {
    beta.assign(static_cast<size_t>(frames * states), -infinity);
    const auto onward = [&](int32_t t, int64_t s) {
      return beta[at(t, s)] + log_probability(t, class_of(s));
    };
    for (int32_t t = frames - 1; t >= 0; --t) {
      for (int64_t s = 0; s < states; ++s) {
        double sum = -infinity;
        if (t == frames - 1) {
          if (s >= states - 2) sum = 0;
        } else {
          sum = onward(t + 1, s);
          if (s + 1 < states) sum = log_add(sum, onward(t + 1, s + 1));
          if (s + 2 < states && may_skip(s)) sum = log_add(sum, onward(t + 1, s + 2));
        }
        beta[at(t, s)] = sum;
      }
    }
  }

  void fill_grad(double value) {
    for (int32_t t = 0; t < frames; ++t) {
      for (int64_t v = 0; v < classes; ++v) {
        args.grad.as<T>()[element(t, v)] = static_cast<T>(value);
      }
    }
  }

  void gradient(double log_z, double scale) {
    std::vector<double> row(static_cast<size_t>(classes));
    for (int32_t t = 0; t < frames; ++t) {
      for (int64_t v = 0; v < classes; ++v) {
        row[static_cast<size_t>(v)] =
            args.input == CtcInput::logits ? std::exp(log_probability(t, v)) : 0.0;
      }
      for (int64_t s = 0; s < states; ++s) {
        row[static_cast<size_t>(class_of(s))] -= std::exp(alpha[at(t, s)] + beta[at(t, s)] - log_z);
      }
      for (int64_t v = 0; v < classes; ++v) {
        args.grad.as<T>()[element(t, v)] = static_cast<T>(scale * row[static_cast<size_t>(v)]);
      }
    }
  }

  // The loss; writes the gradient if wanted.
  double run(double scale) {
    const bool with_grad = static_cast<bool>(args.grad);
    const double impossible = args.zero_infinity ? 0.0 : infinity;
    if (frames < ctc_min_frames(labels)) {
      if (with_grad) fill_grad(0);
      return impossible;
    }
    if (frames == 0) return 0;
    normalise();
    if (has_nan()) {
      if (with_grad) fill_grad(std::numeric_limits<double>::quiet_NaN());
      return std::numeric_limits<double>::quiet_NaN();
    }
    forward();
    double log_z = alpha[at(frames - 1, states - 1)];
    if (states > 1) log_z = log_add(log_z, alpha[at(frames - 1, states - 2)]);
    if (log_z == -infinity) {
      if (with_grad) fill_grad(0);
      return impossible;
    }
    if (with_grad) {
      backward();
      gradient(log_z, scale);
    }
    return -log_z;
  }

  // A NaN (or +inf) in the columns that count, whether or not an alignment passes there.
  bool has_nan() const {
    for (int32_t t = 0; t < frames; ++t) {
      for (int64_t s = 0; s < states; ++s) {
        const double p = log_probability(t, class_of(s));
        if (!(p < infinity)) return true;
      }
    }
    return false;
  }
};

}  // namespace

void ctc_ref(const Context&, const CtcArgs& args) {
  visit_floating(args.logits.dtype, [&]<class T>(T) {
    const bool wide = args.loss.dtype == DType::f64;
    for (int32_t n = 0; n < args.layout.capacity.sequences; ++n) {
      double scale = 1;
      if (args.grad_scale) {
        scale = wide ? args.grad_scale.as<double>()[n]
                     : static_cast<double>(args.grad_scale.as<float>()[n]);
      }
      double loss = 0;
      if (n < args.layout.extent->sequences) loss = Sequence<T>(args, n).run(scale);
      if (wide) {
        args.loss.as<double>()[n] = loss;
      } else {
        args.loss.as<float>()[n] = static_cast<float>(loss);
      }
    }
  });
}

}  // namespace rondo
