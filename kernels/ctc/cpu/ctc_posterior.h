// From posteriors per label position to posteriors per bin (class): several frames at once, so that
// the sums run over frames in the lanes and need no scatter. Included by the *_simd.cc alone.
#pragma once

#include "kernels/ctc/cpu/ctc_simd.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo::RONDO_ISA {
namespace {

// Takes the rows of consecutive frames, upwards (direction 1) or downwards (-1).
template <class Real>
class PosteriorSums {
 public:
  PosteriorSums(CtcSequence& s, int direction)
      : s_(s),
        direction_(direction),
        scratch_(s.side[direction > 0].gather),
        rows_(static_cast<Real*>(scratch_.rows)) {}

  // Where the posteriors of the next frame's label positions go, [padded], all of them.
  Real* row() { return rows_ + static_cast<int64_t>(count_) * s_.padded; }

  void finish_row(int32_t t, double blank) {
    if (count_ == 0) first_ = t;
    blank_[count_++] = static_cast<Real>(blank);
    if (count_ == lanes) flush();
  }

  void flush() {
    if (count_ == 0) return;
    transpose_rows();
    sum_bins();
    store_bins();
    count_ = 0;
  }

 private:
  static constexpr int lanes = lanes_of<Real>;

  // rows_[frame][position] -> transposed[position][frame]
  void transpose_rows() {
    Real* out = static_cast<Real*>(scratch_.transposed);
    for (int32_t i = 0; i < s_.label_count; i += lanes) {
      Vec<Real> block[lanes];
      for (int r = 0; r < lanes; ++r) {
        block[r] = r < count_ ? load(rows_ + static_cast<int64_t>(r) * s_.padded + i) : Vec<Real>{};
      }
      transpose<Real>(block);
      for (int r = 0; r < lanes; ++r) store(out + (i + r) * lanes, block[r]);
    }
  }

  void sum_bins() {
    const Real* in = static_cast<const Real*>(scratch_.transposed);
    Real* out = static_cast<Real*>(scratch_.bin_sums);
    for (int64_t bin = 0; bin < s_.bins; ++bin) {
      Vec<Real> sum = {};
      for (int32_t j = s_.bin_begin[bin]; j < s_.bin_begin[bin + 1]; ++j) {
        sum += load(in + s_.bin_position[j] * lanes);
      }
      store(out + bin * lanes, sum);
    }
    store(out + s_.blank_bin * lanes, load(blank_));
    for (int64_t bin = s_.bins; bin < s_.bin_stride; ++bin) store(out + bin * lanes, Vec<Real>{});
  }

  void store_bins() {
    const Real* in = static_cast<const Real*>(scratch_.bin_sums);
    Real* post = static_cast<Real*>(s_.post);
    for (int64_t bin = 0; bin < s_.bin_stride; bin += lanes) {
      Vec<Real> block[lanes];
      for (int r = 0; r < lanes; ++r) block[r] = load(in + (bin + r) * lanes);
      transpose<Real>(block);
      for (int r = 0; r < count_; ++r) {
        store(post + (first_ + direction_ * r) * s_.bin_stride + bin, block[r]);
      }
    }
  }

  CtcSequence& s_;
  const int direction_;
  const CtcGather& scratch_;
  Real* const rows_;
  int count_ = 0;
  int32_t first_ = 0;
  alignas(64) Real blank_[lanes] = {};
};

}  // namespace
}  // namespace rondo::RONDO_ISA
