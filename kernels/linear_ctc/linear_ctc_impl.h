// The variants of linear_ctc and what they share, for its folder alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/variants.h"
#include "kernels/linear_ctc/linear_ctc.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// Check what linear_ctc.h says of the arguments that the host can see.
void check_linear_ctc(const LinearCtcArgs& args);
void check_linear_ctc(const LinearCtcGradArgs& args);

// What is kept of the batch's rows.
struct LinearCtcRows {
  PackedView layout;
  const int32_t* labels = nullptr;
  const int32_t* label_offsets = nullptr;
  int32_t blank = 0;
  int64_t columns = 0;
  int32_t* classes = nullptr;  // [N, columns]: the class of a column, -1: none
  int32_t* places = nullptr;   // as labels: the column of each label's class
  float* label_grad = nullptr;
  float* normalizer = nullptr;
  float* highest = nullptr;  // [rows], of the logits so far
  float* total = nullptr;    // [rows], of exp(logit - highest)
};

// Logits of some rows and classes.
struct LinearCtcTile {
  float* logits = nullptr;   // [rows, classes]
  void* gradient = nullptr;  // the same, of `dtype`; of f32 it is `logits`
  DType dtype = DType::f32;
  int64_t first_row = 0, rows = 0;
  int64_t first_class = 0, classes = 0;
};

// The pieces of work that the driver has done by a device.
struct LinearCtcDevice {
  // classes and places, of all sequences
  void (*columns)(const Context&, const LinearCtcRows&);
  // highest, total and, for now, the labels' logits in label_grad, of a tile
  void (*statistics)(const Context&, const LinearCtcRows&, const LinearCtcTile&);
  // normalizer, and label_grad: logits to log-probabilities
  void (*normalize)(const Context&, const LinearCtcRows&);
  // normalizer of rows without a gradient, or with NaN
  void (*settle)(const Context&, const LinearCtcRows&);
  // logits to their gradient
  void (*gradient)(const Context&, const LinearCtcRows&, const LinearCtcTile&);
};
void linear_ctc_with(const LinearCtcDevice& device, const Context& context,
                     const LinearCtcArgs& args);
void linear_ctc_with(const LinearCtcDevice& device, const Context& context,
                     const LinearCtcGradArgs& args);

// The row's sequence, the first of its columns, and how many its sequence has.
struct LinearCtcColumns {
  const int32_t* classes;
  float* label_grad;
  int64_t count;
};
[[gnu::always_inline]] RONDO_HOST_DEVICE inline LinearCtcColumns columns_of_row(
    const LinearCtcRows& a, int64_t r) {
  const int64_t n = r - a.layout.row_offsets[a.layout.row_frame[r]];
  return {a.classes + n * a.columns, a.label_grad + r * a.columns,
          1 + a.label_offsets[n + 1] - a.label_offsets[n]};
}

// What a maximum is taken off by: of nothing but -inf, nothing.
[[gnu::always_inline]] RONDO_HOST_DEVICE inline float finite_shift(float highest) {
  return highest == -__builtin_inff() ? 0.0f : highest;
}

// Columns of labels that are classes of the tile: use(column, class in the tile).
template <class F>
[[gnu::always_inline]] RONDO_HOST_DEVICE inline void for_columns_in(const LinearCtcColumns& c,
                                                                    const LinearCtcTile& t,
                                                                    int64_t first, int64_t step,
                                                                    F use) {
  for (int64_t k = first; k < c.count; k += step) {
    const int64_t v = c.classes[k] - t.first_class;
    if (c.classes[k] >= 0 && v >= 0 && v < t.classes) use(k, v);
  }
}

RONDO_DECLARE_KERNEL(LinearCtcArgs, linear_ctc)
RONDO_DECLARE_KERNEL(LinearCtcGradArgs, linear_ctc_grad)
RONDO_DECLARE_GPU(linear_ctc_gpu, LinearCtcArgs);
RONDO_DECLARE_GPU(linear_ctc_grad_gpu, LinearCtcGradArgs);

}  // namespace rondo
