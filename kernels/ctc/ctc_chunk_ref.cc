// The definition in log space, chunk by chunk. A border's column is log alpha, or log beta with the
// emission of the first frame to its right, by state.
#include <limits>
#include <vector>

#include "kernels/ctc/ctc_chunk_impl.h"
#include "kernels/ctc/ctc_reference.h"

namespace rondo {
namespace {

template <class T>
struct Chunk : CtcReferenceRows<T> {
  using Rows = CtcReferenceRows<T>;
  const CtcChunkPart part;
  const double* alpha_in;
  std::vector<double> alpha;  // [frames, states]

  Chunk(const CtcChunk& a, const TensorView& gradients, int32_t sequence)
      : Rows(a, gradients, sequence),
        part(a, sequence),
        alpha_in(ctc_border(a.alpha_in, sequence)) {}

  double* column(std::vector<double>& lattice, int32_t t) const {
    return lattice.data() + t * this->states;
  }
  const double* last_alpha() const { return alpha.data() + (this->frames - 1) * this->states; }

  // False: not a number, here or further left.
  bool forward() {
    this->normalise();
    if (this->has_nan()) return false;
    if (part.begins_left) {
      if (ctc_read_header(alpha_in).kind == CtcBorderHeader::not_a_number) return false;
    }
    alpha.assign(static_cast<size_t>(this->frames * this->states), 0);
    const double* before = part.begins_left ? alpha_in + ctc_border_header : nullptr;
    for (int32_t t = 0; t < this->frames; ++t) {
      this->alpha_step(before, column(alpha, t), t);
      before = column(alpha, t);
    }
    return true;
  }

  // beta's header at the right border.
  CtcBorderHeader total(const double* beta_in, bool is_number) {
    if (!part.has_last) return ctc_read_header(beta_in);
    CtcBorderHeader header;
    header.kind = CtcBorderHeader::not_a_number;
    if (!is_number) return header;
    header.total = this->log_total(last_alpha());
    header.kind = header.total == -std::numeric_limits<double>::infinity()
                      ? CtcBorderHeader::impossible
                      : CtcBorderHeader::finite;
    header.loss = -header.total;
    return header;
  }

  void gradient(const double* beta_in, double* beta_out, double log_z, double scale) {
    std::vector<double> beta(static_cast<size_t>(this->states)), onward = beta;
    if (!part.has_last) std::copy_n(beta_in + ctc_border_header, this->states, onward.begin());
    for (int32_t t = this->frames - 1; t >= 0; --t) {
      const bool last = part.has_last && t == this->frames - 1;
      this->beta_step(last ? nullptr : onward.data(), beta.data());
      for (int64_t s = 0; s < this->states; ++s) {
        onward[static_cast<size_t>(s)] =
            beta[static_cast<size_t>(s)] + this->log_probability(t, this->class_of(s));
      }
      this->grad_row(t, column(alpha, t), beta.data(), log_z, scale);
    }
    if (beta_out) std::copy(onward.begin(), onward.end(), beta_out + ctc_border_header);
  }
};

template <class T>
void alpha_of(const CtcChunkAlphaArgs& a, int32_t n) {
  Chunk<T> c(a, {}, n);
  double* out = ctc_border(a.alpha_out, n);
  if (ctc_pass_on_alpha(a, c.part, n)) return;
  CtcBorderHeader header;
  header.kind = c.forward() ? CtcBorderHeader::finite : CtcBorderHeader::not_a_number;
  ctc_write_header(header, out);
  if (header.kind == CtcBorderHeader::finite) {
    std::copy_n(c.last_alpha(), c.states, out + ctc_border_header);
  }
}

template <class T>
void grad_of(const CtcChunkGradArgs& a, int32_t n) {
  Chunk<T> c(a, a.grad, n);
  const double* in = ctc_border(a.beta_in, n);
  double* out = ctc_border(a.beta_out, n);
  if (!c.part.feasible) c.fill_grad(0);
  if (ctc_pass_on_beta(a, c.part, n)) return;
  const CtcBorderHeader header = c.total(in, c.forward());
  ctc_set_loss(a.loss, n, ctc_loss_of(header, a.zero_infinity));
  ctc_write_header(header, out);
  if (header.kind == CtcBorderHeader::finite) {
    c.gradient(in, out, header.total, ctc_scale_of(a.grad_scale, n));
  } else {
    c.fill_grad(
        header.kind == CtcBorderHeader::impossible ? 0 : std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

void ctc_chunk_alpha_ref(const Context&, const CtcChunkAlphaArgs& args) {
  check_ctc_chunk(args);
  visit_floating(args.logits.dtype, [&]<class T>(T) {
    for (int32_t n = 0; n < args.layout.extent->sequences; ++n) alpha_of<T>(args, n);
  });
}

void ctc_chunk_grad_ref(const Context&, const CtcChunkGradArgs& args) {
  check_ctc_chunk(args);
  ctc_clear_spare_losses(args);
  visit_floating(args.logits.dtype, [&]<class T>(T) {
    for (int32_t n = 0; n < args.layout.extent->sequences; ++n) grad_of<T>(args, n);
  });
}

}  // namespace rondo
