// A chunk's part of the lattice. Compiled once per instruction set.
//
// alpha is kept at every block's first frame and made again block by block while beta comes down,
// as in ctc_wide.
#include "kernels/ctc/cpu/ctc_wide_steps.h"
#include "kernels/ctc/ctc_chunk_impl.h"

namespace rondo::RONDO_ISA {
namespace {

template <class E, class Real>
class Chunk {
 public:
  explicit Chunk(CtcChunkSequence& c)
      : c_(c), s_(c.s), block_(ctc_wide_block(c.s.frames)), steps_(c.s) {}

  void alpha(CtcBorderHeader& header) {
    if (!normalisers(header)) return;
    const double* before = c_.has_first ? nullptr : c_.alpha_in;
    for (int32_t t = 0; t < s_.frames; ++t) {
      double* now = t + 1 == s_.frames ? c_.alpha_out : scratch(t % 2);
      steps_.step_alpha(before, now, t);
      before = now;
    }
  }

  void beta(CtcBorderHeader before, CtcBorderHeader& header) {
    if (!c_.has_last && header.kind != CtcBorderHeader::finite) return;
    const double* end = checkpoints();
    if (c_.has_last) {
      normalisers(before);
      finish(before, end, header);
      if (header.kind != CtcBorderHeader::finite) return;
    }
    const WideTotal total{header.total, header.total_exponent};
    double* now = scratch(0);
    double* next = scratch(1);
    for (int32_t block = (s_.frames - 1) / block_; block >= 0; --block) {
      const int32_t begin = block * block_;
      const int32_t last = begin + block_ < s_.frames ? begin + block_ : s_.frames;
      steps_.copy(checkpoint(block), in_block(0));
      for (int32_t t = begin + 1; t < last; ++t) {
        steps_.step_alpha(in_block(t - 1 - begin), in_block(t - begin), t);
      }
      for (int32_t t = last - 1; t >= begin; --t) {
        beta_of(t, now, next);
        double* other = now;
        now = next;
        next = other;
        steps_.posterior(t, in_block(t - begin), now, total);
      }
    }
    steps_.flush();
    if (c_.beta_out) steps_.emit(now, c_.beta_out, 0);
  }

 private:
  double* checkpoint(int32_t i) const { return s_.columns + i * steps_.column_size(); }
  double* in_block(int32_t i) const { return checkpoint((s_.frames + block_ - 1) / block_ + i); }
  double* scratch(int32_t i) const { return s_.scratch + i * steps_.column_size(); }

  // Adds the rows' normalisers in the order of the frames; false if one is not a number.
  bool normalisers(CtcBorderHeader& header) const {
    if (header.kind == CtcBorderHeader::not_a_number) return false;
    for (int32_t t = 0; t < s_.frames; ++t) {
      const auto row_sum = static_cast<double>(static_cast<const Real*>(s_.row_sum)[t]);
      if (!(row_sum < __builtin_inf())) {
        header.kind = CtcBorderHeader::not_a_number;
        return false;
      }
      header.shifts += s_.input == CtcInput::logits
                           ? -::log(row_sum)
                           : static_cast<double>(static_cast<const Real*>(s_.row_max)[t]);
    }
    header.kind = CtcBorderHeader::finite;
    return true;
  }

  // alpha of each block's first frame; returns that of the last frame.
  const double* checkpoints() {
    const double* before = c_.has_first ? nullptr : c_.alpha_in;
    for (int32_t t = 0; t < s_.frames; ++t) {
      double* now = t % block_ == 0 ? checkpoint(t / block_) : scratch(t % 2);
      steps_.step_alpha(before, now, t);
      before = now;
    }
    return before;
  }

  // The sum over all alignments, where the last frame lies here.
  void finish(const CtcBorderHeader& alpha_header, const double* end, CtcBorderHeader& header) {
    header.kind = alpha_header.kind;
    if (header.kind == CtcBorderHeader::not_a_number) return;
    const WideTotal total = steps_.end_sum(end);
    if (!(total.z > 0)) {
      header.kind = CtcBorderHeader::impossible;
      return;
    }
    header.total = total.z;
    header.total_exponent = total.exponent;
    header.loss = -(total.logarithm() + alpha_header.shifts);
  }

  // beta of frame t into `to`; `from` is that of frame t + 1 of this chunk.
  void beta_of(int32_t t, const double* from, double* to) {
    if (t + 1 < s_.frames) {
      steps_.template step_beta<WideColumn::beta>(from, to, t + 1);
    } else if (c_.has_last) {
      steps_.start_beta(to);
    } else {
      steps_.template step_beta<WideColumn::emitted>(c_.beta_in, to, t + 1);
    }
  }

  CtcChunkSequence& c_;
  CtcSequence& s_;
  const int32_t block_;
  WideSteps<E, Real> steps_;
};

template <class F>
void with_types(CtcChunkSequence& c, DType dtype, F f) {
  switch (dtype) {
    case DType::f32: {
      Chunk<float, float> chunk(c);
      return f(chunk);
    }
    case DType::bf16: {
      Chunk<uint16_t, float> chunk(c);
      return f(chunk);
    }
    default: {
      Chunk<double, double> chunk(c);
      return f(chunk);
    }
  }
}

}  // namespace

void ctc_chunk_alpha(CtcChunkSequence& c, DType dtype, CtcBorderHeader& header) {
  with_types(c, dtype, [&](auto& chunk) { chunk.alpha(header); });
}

void ctc_chunk_beta(CtcChunkSequence& c, DType dtype, const CtcBorderHeader& before,
                    CtcBorderHeader& header) {
  with_types(c, dtype, [&](auto& chunk) { chunk.beta(before, header); });
}

}  // namespace rondo::RONDO_ISA
