// What the driver of the CPU kernels copies before it multiplies: frames into strips, weights into
// panels. Of kernels/conv2d alone.
#pragma once

#include <span>

#include "kernels/base/carver.h"
#include "kernels/conv2d/conv2d_impl.h"

namespace rondo {

// The least and the greatest position of the source that targets [first, last] are made of.
struct Conv2dReach {
  int64_t low, high;
};
Conv2dReach conv2d_reach(const ConvTaps& taps, int64_t first, int64_t last);

// Neighbouring frames of one sequence as floats, with rows of zeros above and below: as many as
// windows of the frames and rows of the result reach.
class Conv2dStrip {
 public:
  // For targets of up to `block` neighbouring frames.
  Conv2dStrip(Carver& carver, const Conv2dGather& gather, int64_t block);

  // What frames [first, last] of the result of sequence n are made of, as far as it exists.
  void fill(const ConvSource& source, DType dtype, int64_t n, int64_t first, int64_t last);

  // Row `height` of frame t of the source, which fill() has reached; nullptr: no such frame.
  const float* at(int64_t t, int64_t height) const {
    const float* column = columns_[t - first_];
    return column ? column + (height + above_) * channels_ : nullptr;
  }

 private:
  ConvTaps time_;
  int64_t source_cols_, channels_;
  int64_t above_ = 0, size_ = 0;  // rows of zeros above; floats of a frame
  int64_t frames_ = 0, first_ = 0;
  float* values_ = nullptr;
  const float** columns_ = nullptr;
};

// Rows of the kernel that reach neighbouring rows of the source.
struct Conv2dRun {
  int32_t first_tap, taps;  // among those of the class
  int32_t offset;           // the row of the source where the class's first pixel begins
};

// Pixels of a frame that the same rows of the kernel reach: first, first + step, ... Without a
// stride to undo all are of one class.
struct Conv2dHeightClass {
  int32_t first, step, pixels;
  int32_t first_run, runs;
  int32_t first_tap, taps;
};

// Which terms a pixel is made of, in the order of memory, and their weights in panels. Term (column
// l of the kernel, tap i of a class, channel c) stands at first_term(class, l, i) + c.
class Conv2dTerms {
 public:
  Conv2dTerms(Carver& carver, const Conv2dGather& gather, int64_t panel);

  // Fills what the carver has given.
  void list_classes();
  void arrange(const Context& context, const TensorView& w, const TensorView& bias);

  int64_t panel() const { return panel_; }
  int64_t panels() const { return panels_; }
  int64_t count() const { return count_; }
  const float* weights(int64_t p) const { return weights_ + p * count_ * panel_; }
  const float* bias(int64_t p) const { return bias_ + p * panel_; }
  std::span<const Conv2dHeightClass> classes() const {
    return {classes_, static_cast<size_t>(gather_.height.divide)};
  }
  std::span<const Conv2dRun> runs(const Conv2dHeightClass& c) const {
    return {runs_ + c.first_run, static_cast<size_t>(c.runs)};
  }
  int64_t first_term(const Conv2dHeightClass& c, int64_t column, int64_t tap) const {
    return (int64_t{gather_.time.count} * c.first_tap + column * c.taps + tap) *
           gather_.source_channels;
  }
  // The row of the kernel that is tap i of a class.
  int64_t kernel_row(const Conv2dHeightClass& c, int64_t tap) const {
    return rows_[c.first_tap + tap];
  }

 private:
  template <class T>
  void arrange_panel(const T* w, int64_t p, int64_t column) const;

  Conv2dGather gather_;
  int64_t panel_, panels_, count_;
  Conv2dHeightClass* classes_ = nullptr;
  Conv2dRun* runs_ = nullptr;
  int32_t* rows_ = nullptr;
  float* weights_ = nullptr;
  float* bias_ = nullptr;
};

// `count` elements as floats.
void conv2d_floats(float* to, const void* from, DType dtype, int64_t count);

}  // namespace rondo
