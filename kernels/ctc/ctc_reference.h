// What ctc_ref and ctc_chunk_ref share: the rows of one sequence in log space.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ctc/ctc.h"

namespace rondo {

inline double ctc_log_add(double a, double b) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  if (a == none) return b;
  if (b == none) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

// States 0..2L: blanks at the even ones. Frames are those of the layout.
template <class T>
struct CtcReferenceRows {
  const PackedView layout;
  const TensorView logits, grad;
  const int32_t n, frames, blank;
  const CtcInput input;
  const std::span<const int32_t> labels;
  const int64_t classes, states;
  std::vector<double> normaliser;  // [frames]: log-sum-exp of the row

  template <class Args>
  CtcReferenceRows(const Args& a, const TensorView& gradient, int32_t sequence)
      : layout(a.layout),
        logits(a.logits),
        grad(gradient),
        n(sequence),
        frames(a.layout.lengths[sequence]),
        blank(a.blank),
        input(a.input),
        labels(a.labels + a.label_offsets[sequence], a.labels + a.label_offsets[sequence + 1]),
        classes(a.logits.dim(1)),
        states(2 * static_cast<int64_t>(labels.size()) + 1) {}

  int64_t element(int32_t t, int64_t v) const {
    return (static_cast<int64_t>(layout.row_offsets[t]) + n) * classes + v;
  }
  double logit(int32_t t, int64_t v) const {
    return static_cast<double>(logits.as<T>()[element(t, v)]);
  }
  double log_probability(int32_t t, int64_t v) const {
    return logit(t, v) - normaliser[static_cast<size_t>(t)];
  }
  int64_t class_of(int64_t s) const {
    return s % 2 == 0 ? blank : labels[static_cast<size_t>(s / 2)];
  }
  // From s to s + 2: between two labels that differ.
  bool may_skip(int64_t s) const { return s % 2 == 1 && class_of(s) != class_of(s + 2); }

  void normalise() {
    constexpr double none = -std::numeric_limits<double>::infinity();
    normaliser.assign(static_cast<size_t>(frames), 0.0);
    if (input == CtcInput::log_softmax) return;
    for (int32_t t = 0; t < frames; ++t) {
      double top = none, sum = 0;
      for (int64_t v = 0; v < classes; ++v) top = std::max(top, logit(t, v));
      for (int64_t v = 0; v < classes; ++v) sum += std::exp(logit(t, v) - top);
      normaliser[static_cast<size_t>(t)] = top + std::log(sum);
    }
  }

  // A NaN (or +inf) in the columns that count, whether or not an alignment passes there.
  bool has_nan() const {
    for (int32_t t = 0; t < frames; ++t) {
      for (int64_t s = 0; s < states; ++s) {
        if (!(log_probability(t, class_of(s)) < std::numeric_limits<double>::infinity())) {
          return true;
        }
      }
    }
    return false;
  }

  // `before`: alpha of the frame before; nullptr: t is the first of the sequence. [states]
  void alpha_step(const double* before, double* now, int32_t t) const {
    for (int64_t s = 0; s < states; ++s) {
      double sum = -std::numeric_limits<double>::infinity();
      if (before == nullptr) {
        if (s < 2) sum = 0;
      } else {
        sum = before[s];
        if (s >= 1) sum = ctc_log_add(sum, before[s - 1]);
        if (s >= 2 && may_skip(s - 2)) sum = ctc_log_add(sum, before[s - 2]);
      }
      now[s] = sum + log_probability(t, class_of(s));
    }
  }

  // beta, without the emission at its frame, from `onward`: beta of the frame after with that
  // frame's emission; nullptr: the frame is the last of the sequence.
  void beta_step(const double* onward, double* now) const {
    for (int64_t s = 0; s < states; ++s) {
      double sum = -std::numeric_limits<double>::infinity();
      if (onward == nullptr) {
        if (s >= states - 2) sum = 0;
      } else {
        sum = onward[s];
        if (s + 1 < states) sum = ctc_log_add(sum, onward[s + 1]);
        if (s + 2 < states && may_skip(s)) sum = ctc_log_add(sum, onward[s + 2]);
      }
      now[s] = sum;
    }
  }

  double log_total(const double* last_alpha) const {
    const double log_z = last_alpha[states - 1];
    return states > 1 ? ctc_log_add(log_z, last_alpha[states - 2]) : log_z;
  }

  void fill_grad(double value) const {
    for (int32_t t = 0; t < frames; ++t) {
      for (int64_t v = 0; v < classes; ++v) {
        grad.as<T>()[element(t, v)] = static_cast<T>(value);
      }
    }
  }

  void grad_row(int32_t t, const double* alpha, const double* beta, double log_z,
                double scale) const {
    std::vector<double> row(static_cast<size_t>(classes));
    for (int64_t v = 0; v < classes; ++v) {
      row[static_cast<size_t>(v)] =
          input == CtcInput::logits ? std::exp(log_probability(t, v)) : 0.0;
    }
    for (int64_t s = 0; s < states; ++s) {
      row[static_cast<size_t>(class_of(s))] -= std::exp(alpha[s] + beta[s] - log_z);
    }
    for (int64_t v = 0; v < classes; ++v) {
      grad.as<T>()[element(t, v)] = static_cast<T>(scale * row[static_cast<size_t>(v)]);
    }
  }
};

}  // namespace rondo
