// alpha and beta with an exponent per state: no range to leave, for sequences too peaked for
// ctc_lattice and for impossible ones. Compiled once per instruction set.
//
// alpha is kept at every block's first frame and made again block by block while beta comes down:
// the memory is O(sqrt(T) L).
#include "kernels/ctc/cpu/ctc_wide_steps.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo::RONDO_ISA {
namespace {

template <class E, class Real>
class WideLattice {
 public:
  explicit WideLattice(CtcSequence& s) : s_(s), block_(ctc_wide_block(s.frames)), steps_(s) {}

  CtcLoss run() {
    const bool with_grad = s_.grad != nullptr;
    double* a = with_grad ? work(0) : s_.scratch;
    double* b = with_grad ? work(1) : s_.scratch + steps_.column_size();
    for (int32_t t = 0; t < s_.frames; ++t) {
      if (!take_row(t)) return {0, CtcLoss::not_a_number};
      steps_.step_alpha(t > 0 ? a : nullptr, b, t);
      double* next = a;
      a = b;
      b = next;
      if (with_grad && t % block_ == 0) steps_.copy(a, checkpoint(t / block_));
    }
    total_ = steps_.end_sum(a);
    if (!(total_.z > 0)) return {0, CtcLoss::impossible};
    if (with_grad) {
      gradient();
      steps_.flush();
    }
    return {-(total_.logarithm() + shifts_), CtcLoss::finite};
  }

 private:
  double* checkpoint(int32_t i) const { return s_.columns + i * steps_.column_size(); }
  double* in_block(int32_t i) const { return checkpoint((s_.frames + block_ - 1) / block_ + i); }
  double* work(int32_t i) const { return in_block(block_ + i); }

  bool take_row(int32_t t) {
    const auto row_sum = static_cast<double>(static_cast<const Real*>(s_.row_sum)[t]);
    if (!(row_sum < __builtin_inf())) return false;
    shifts_ += s_.input == CtcInput::logits
                   ? -::log(row_sum)
                   : static_cast<double>(static_cast<const Real*>(s_.row_max)[t]);
    return true;
  }

  void gradient() {
    double* beta = work(0);
    double* next = work(1);
    steps_.start_beta(beta);
    for (int32_t block = (s_.frames - 1) / block_; block >= 0; --block) {
      const int32_t begin = block * block_;
      const int32_t end = begin + block_ < s_.frames ? begin + block_ : s_.frames;
      steps_.copy(checkpoint(block), in_block(0));
      for (int32_t t = begin + 1; t < end; ++t) {
        steps_.step_alpha(in_block(t - 1 - begin), in_block(t - begin), t);
      }
      for (int32_t t = end - 1; t >= begin; --t) {
        if (t < s_.frames - 1) {
          steps_.template step_beta<WideColumn::beta>(beta, next, t + 1);
          double* other = beta;
          beta = next;
          next = other;
        }
        steps_.posterior(t, in_block(t - begin), beta, total_);
      }
    }
  }

  CtcSequence& s_;
  const int32_t block_;
  WideSteps<E, Real> steps_;
  WideTotal total_;
  double shifts_ = 0;
};

}  // namespace

CtcLoss ctc_wide(CtcSequence& s, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return WideLattice<float, float>(s).run();
    case DType::bf16:
      return WideLattice<uint16_t, float>(s).run();
    default:
      return WideLattice<double, double>(s).run();
  }
}

}  // namespace rondo::RONDO_ISA
