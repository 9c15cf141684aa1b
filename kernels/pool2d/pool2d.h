// Pooling over height and time of packed batches of images, whose columns of pixels are the frames
// (kernels/conv/conv.h has the layout).
//
//   pool2d       y[t, g, c] = the greatest, or the mean, of x[t', g', c] over the window
//                  g * rows <= g' < (g + 1) * rows,  t * columns <= t' < (t + 1) * columns
//   pool2d_grad  dx[t', g', c] from dy: of the greatest, all to the first pixel that equals it,
//   going
//                through the window row by row; of the mean an equal share to each
//
// Windows lie side by side. The last one of a sequence has the frames that are left. Pixels at the
// bottom that fill no window are dropped, and get no gradient (0).
// Shapes: x, dx [rows, height * channels] in layout `from`; y, dy [rows', (height / rows) *
//   channels] in layout `to`, with ceil(length / columns) frames of each sequence, or with
//   floor(length / columns): then frames that fill no window are dropped as well. One dtype (f32,
//   bf16, f64) within a call; means are summed in f32 (double in ref).
// The greatest of values of which one is NaN is NaN; then the gradient goes to the window's first.
// Rows past the extents are neither read nor written. Aliasing: none.
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/op.h"
#include "kernels/base/packed.h"
#include "kernels/pool2d/pooling2d.h"

namespace rondo {

struct Pool2dDims {
  int64_t channels = 1;
  int32_t height = 1;             // of x
  int32_t rows = 1, columns = 1;  // of a window; rows <= height, columns <= 64
  RONDO_HOST_DEVICE constexpr int32_t out_height() const { return height / rows; }
};

struct Pool2dArgs {
  static constexpr const char* op = "pool2d";
  Pooling2d pooling = Pooling2d::greatest;
  Pool2dDims dims;
  PackedView from, to;
  TensorView x;
  TensorView y;
};

struct Pool2dGradArgs {
  static constexpr const char* op = "pool2d_grad";
  Pooling2d pooling = Pooling2d::greatest;
  Pool2dDims dims;
  PackedView from, to;
  TensorView x;  // absent for the mean
  TensorView dy;
  TensorView dx;
};

std::span<const Variant> pool2d_variants();
std::span<const Variant> pool2d_grad_variants();

}  // namespace rondo
