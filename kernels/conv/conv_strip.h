// What the driver of the CPU kernels copies before it multiplies: frames into strips, weights into
// panels. Of kernels/conv alone.
#pragma once

#include <span>

#include "kernels/base/carver.h"
#include "kernels/conv/conv_impl.h"

namespace rondo {

// The least and the greatest position of the source that targets [first, last] are made of.
struct ConvReach {
  int64_t low, high;
};
ConvReach conv_reach(const ConvTaps& taps, int64_t first, int64_t last);

// What a slot of 32 bits holds (conv_tiles.h).
enum class ConvSlots : uint8_t {
  values,         // a float
  channel_pairs,  // two neighbouring channels of a pixel as bf16; zero past the last
  pixel_pairs     // a channel of two pixels of neighbouring windows as bf16: row h and h + stride
};

// Slots of a pixel with so many channels.
constexpr int64_t conv_pixel_slots(ConvSlots slots, int64_t channels) {
  return slots == ConvSlots::channel_pairs ? (channels + 1) / 2 : channels;
}

// Neighbouring frames of one sequence in slots, with rows of zeros above and below: as many as
// windows of the frames and rows of the result reach. A column of the strip is a frame of the
// source, or those that are beside each other (ConvGather).
class ConvStrip {
 public:
  // For targets of up to `block` neighbouring frames.
  ConvStrip(Carver& carver, const ConvGather& gather, ConvSlots slots, int64_t block);

  // What frames [first, last] of the result of sequence n are made of, as far as it exists.
  void fill(const ConvSource& source, DType dtype, int64_t n, int64_t first, int64_t last);

  // Row `height` of column t, which fill() has reached; nullptr: nothing is there.
  const float* at(int64_t t, int64_t height) const {
    const float* column = columns_[t - first_];
    return column ? column + (height + above_) * pixel_slots_ : nullptr;
  }

 private:
  bool find_frames(const ConvSource& source, DType dtype, int64_t n, int64_t t);
  void fill_column(float* column, DType dtype) const;
  void fill_row(float* to, int64_t row, DType dtype) const;
  const char* pixel(int64_t row, DType dtype) const;
  void fill_beside(float* column, DType dtype) const;

  ConvTaps time_, beside_;
  ConvSlots slots_;
  int64_t channels_, height_;  // of a frame of the source: of one group
  int64_t pixel_;              // values from a pixel of the source to the next one
  int64_t pair_step_;          // rows from one pixel of a pair to the other
  int64_t pixel_slots_;
  int64_t above_ = 0, rows_ = 0;  // rows of zeros above; all rows of a column
  int64_t frames_ = 0, first_ = 0;
  float* values_ = nullptr;
  const float** columns_ = nullptr;
  const char** beside_frames_ = nullptr;  // nullptr: there is none
};

// Rows of the kernel that reach neighbouring rows of the source.
struct ConvRun {
  int32_t first_tap, taps;  // among those of the class
  int32_t offset;           // the row of the source where the class's first pixel begins
};

// Pixels of a frame that the same rows of the kernel reach: first, first + step, ... Without a
// stride to undo all are of one class.
struct ConvHeightClass {
  int32_t first, step, pixels;
  int32_t first_run, runs;
  int32_t first_tap, taps;
};

// Which terms a pixel is made of, in the order of memory, and their weights in panels. Term (column
// l of the kernel, tap i of a class, slot c of a pixel) stands at first_term(class, l, i) + c. Of
// depthwise convolutions there is one panel, as wide as a single output: each of its channels is
// made of the slot that is its own.
class ConvTerms {
 public:
  ConvTerms(Carver& carver, const ConvGather& gather, ConvSlots slots, int64_t panel);

  // Fills what the carver has given.
  void list_classes();
  // `group`: the one whose weights are arranged.
  void arrange(const Context& context, const TensorView& w, const TensorView& bias, int64_t group);

  int64_t panel() const { return panel_; }
  int64_t panels() const { return panels_; }
  int64_t count() const { return count_; }
  const float* weights(int64_t p) const { return weights_ + p * count_ * panel_; }
  const float* bias(int64_t p) const { return bias_ + p * panel_; }  // depthwise: all channels
  std::span<const ConvHeightClass> classes() const {
    return {classes_, static_cast<size_t>(gather_.height.divide)};
  }
  std::span<const ConvRun> runs(const ConvHeightClass& c) const {
    return {runs_ + c.first_run, static_cast<size_t>(c.runs)};
  }
  int64_t first_term(const ConvHeightClass& c, int64_t column, int64_t tap) const {
    return (int64_t{gather_.time.count} * c.first_tap + column * c.taps + tap) * pixel_slots_;
  }
  int64_t pixel_slots() const { return pixel_slots_; }
  // The row of the kernel that is tap i of a class.
  int64_t kernel_row(const ConvHeightClass& c, int64_t tap) const {
    return rows_[c.first_tap + tap];
  }

 private:
  template <class To, class T>
  void arrange_pixel(To* to, int64_t depth, const T* from, int64_t channels) const;
  template <class T>
  void arrange_panel(const T* w, int64_t p, int64_t column) const;

  ConvGather gather_;
  ConvSlots slots_;
  int64_t pixel_slots_, panel_, panels_, count_;
  ConvHeightClass* classes_ = nullptr;
  ConvRun* runs_ = nullptr;
  int32_t* rows_ = nullptr;
  float* weights_ = nullptr;
  float* bias_ = nullptr;
};

// `count` elements as floats; zeros for nullptr.
void conv_floats(float* to, const void* from, DType dtype, int64_t count);
// sums[i] += element i.
void conv_add(float* sums, const void* from, DType dtype, int64_t count);
// `count` slots of pairs of bf16, (first[i], second[i]); zeros for nullptr.
void conv_pairs(float* to, const void* first, const void* second, int64_t count);

}  // namespace rondo
