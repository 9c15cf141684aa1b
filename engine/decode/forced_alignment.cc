#include "engine/decode/forced_alignment.h"

#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

// States: an even one is a blank, an odd one the label before it.
class Lattice {
 public:
  Lattice(const float* scores, int32_t frames, int32_t classes, std::span<const int32_t> labels,
          int32_t blank)
      : scores_(scores),
        frames_(frames),
        classes_(classes),
        labels_(labels),
        blank_(blank),
        states_(2 * labels.size() + 1),
        steps_(states_ * static_cast<size_t>(frames)),
        best_(states_, nothing) {}

  void run() {
    for (int32_t t = 0; t < frames_; ++t) {
      const float* row = scores_ + static_cast<int64_t>(t) * classes_;
      for (int32_t c = 0; c < classes_; ++c)
        RONDO_CHECK(!std::isnan(row[c]), "frame ", t, " holds a NaN score");
      advance(row, t);
    }
  }

  std::vector<TimedLabel> trace() const {
    const size_t last = states_ - 1;
    size_t state = last > 0 && best_[last - 1] >= best_[last] ? last - 1 : last;
    if (best_[state] == nothing) {
      fail_input(frames_, " frames have no alignment with ", labels_.size(),
                 " labels (too few frames, or a probability of 0)");
    }
    std::vector<TimedLabel> timed(labels_.size());
    for (size_t i = 0; i < labels_.size(); ++i) timed[i] = {labels_[i], frames_, 0};
    for (int32_t t = frames_ - 1; t >= 0; --t) {
      if (state % 2 == 1) {
        TimedLabel& label = timed[state / 2];
        label.first_frame = t;
        if (label.end_frame == 0) label.end_frame = t + 1;
      }
      state -= steps_[static_cast<size_t>(t) * states_ + state];
    }
    return timed;
  }

 private:
  int32_t class_of(size_t state) const { return state % 2 == 0 ? blank_ : labels_[state / 2]; }

  // From the highest state to the lowest, so that one row is enough.
  void advance(const float* row, int32_t t) {
    for (size_t s = states_; s-- > 0;) {
      double from = t == 0 ? (s <= 1 ? 0 : nothing) : best_[s];
      uint8_t step = 0;
      if (t > 0 && s >= 1 && best_[s - 1] > from) {
        from = best_[s - 1];
        step = 1;
      }
      // Over the blank between two labels, unless they are equal.
      const bool may_skip = t > 0 && s % 2 == 1 && s >= 3 && labels_[s / 2] != labels_[s / 2 - 1];
      if (may_skip && best_[s - 2] > from) {
        from = best_[s - 2];
        step = 2;
      }
      best_[s] = from + row[class_of(s)];
      steps_[static_cast<size_t>(t) * states_ + s] = step;
    }
  }

  const float* const scores_;
  const int32_t frames_, classes_;
  const std::span<const int32_t> labels_;
  const int32_t blank_;
  const size_t states_;
  std::vector<uint8_t> steps_;  // [frames, states]: from how many states before
  std::vector<double> best_;    // of the alignments that end in a state
};

}  // namespace

std::vector<TimedLabel> forced_alignment(const float* scores, int32_t frames, int32_t classes,
                                         std::span<const int32_t> labels, int32_t blank) {
  RONDO_CHECK(frames >= 0 && classes >= 1, frames, " frames of ", classes, " classes");
  for (const int32_t label : labels) {
    RONDO_CHECK(label >= 0 && label < classes && label != blank, "label ", label, " of ", classes,
                " classes, blank ", blank);
  }
  if (frames == 0 && labels.empty()) return {};
  Lattice lattice(scores, frames, classes, labels, blank);
  lattice.run();
  return lattice.trace();
}

}  // namespace rondo
