// The definition in log space: full alpha and beta lattices, one frame and state at a time.
#include <limits>
#include <vector>

#include "kernels/ctc/ctc_impl.h"
#include "kernels/ctc/ctc_reference.h"

namespace rondo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
struct Sequence : CtcReferenceRows<T> {
  using Rows = CtcReferenceRows<T>;
  const bool zero_infinity;
  std::vector<double> alpha, beta;  // [frames, states]; beta without the emission at its frame

  Sequence(const CtcArgs& a, int32_t sequence)
      : Rows(a, a.grad, sequence), zero_infinity(a.zero_infinity) {}

  double* column(std::vector<double>& lattice, int32_t t) const {
    return lattice.data() + t * this->states;
  }

  void forward() {
    alpha.assign(static_cast<size_t>(this->frames * this->states), 0);
    for (int32_t t = 0; t < this->frames; ++t) {
      this->alpha_step(t > 0 ? column(alpha, t - 1) : nullptr, column(alpha, t), t);
    }
  }

  void backward() {
    beta.assign(static_cast<size_t>(this->frames * this->states), 0);
    std::vector<double> onward(static_cast<size_t>(this->states));
    for (int32_t t = this->frames - 1; t >= 0; --t) {
      const bool last = t == this->frames - 1;
      for (int64_t s = 0; !last && s < this->states; ++s) {
        onward[static_cast<size_t>(s)] =
            column(beta, t + 1)[s] + this->log_probability(t + 1, this->class_of(s));
      }
      this->beta_step(last ? nullptr : onward.data(), column(beta, t));
    }
  }

  // The loss; writes the gradient if wanted.
  double run(double scale) {
    const bool with_grad = static_cast<bool>(this->grad);
    const double impossible = zero_infinity ? 0.0 : infinity;
    if (this->frames < ctc_min_frames(this->labels)) {
      if (with_grad) this->fill_grad(0);
      return impossible;
    }
    if (this->frames == 0) return 0;
    this->normalise();
    if (this->has_nan()) {
      if (with_grad) this->fill_grad(std::numeric_limits<double>::quiet_NaN());
      return std::numeric_limits<double>::quiet_NaN();
    }
    forward();
    const double log_z = this->log_total(column(alpha, this->frames - 1));
    if (log_z == -infinity) {
      if (with_grad) this->fill_grad(0);
      return impossible;
    }
    if (!with_grad) return -log_z;
    backward();
    for (int32_t t = 0; t < this->frames; ++t) {
      this->grad_row(t, column(alpha, t), column(beta, t), log_z, scale);
    }
    return -log_z;
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
