// Between the drivers of the CPU kernels (conv_direct.cc, conv_in_place.cc: one each for all
// instruction sets) and the register tiles that are compiled per instruction set (conv_simd.cc).
//
// A panel is as many output channels as a tile has: ConvKernel::panel of them, in whole vectors.
// Weights lie panel by panel, within it term by term: [panels][terms][panel], zero past the last
// channel. A term is what a pixel is made of at one place of x: a slot of 32 bits, which holds a
// float, or a pair of bf16 where ConvKernel::depth is 2. Of what the sums run over, the channels
// of a pixel (pixels()) or neighbouring pixels (outer()), two then share a slot, and a product of
// slots is the sum of the products of both.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace rondo {

// Terms that lie one after the other in memory.
struct ConvSegment {
  const float* x;      // those of the first pixel
  int64_t first_term;  // among the panel's
  int64_t length;
};

// Pixels of one frame, and one panel of their channels: y = bias + sum over the segments' terms.
struct ConvPixels {
  const ConvSegment* segments = nullptr;
  int64_t segment_count = 0;
  int64_t pixels = 0;
  int64_t x_step = 0;  // slots from a pixel's terms to the next one's
  int64_t panel = 0;
  const float* w = nullptr;     // [terms, panel]
  const float* bias = nullptr;  // [panel]
  void* y = nullptr;            // f32 or bf16
  DType dtype = DType::f32;
  int64_t y_step = 0;    // elements from pixel to pixel
  int64_t channels = 0;  // of the panel, as many as there are: at most `panel`
};

// Gradients of the weights of `terms` terms that lie one after the other, for one panel:
// sums[i][o] += sum over frames f and pixels p of x[f][p * x_step + i] * dy[f][p * dy_step + o],
// where `pixels` counts pairs if slots hold pairs.
struct ConvOuter {
  const float* const* x = nullptr;   // [frames], the first pixel's
  const float* const* dy = nullptr;  // [frames], the first pixel's
  int64_t frames = 0, pixels = 0;
  int64_t x_step = 0, dy_step = 0;
  int64_t terms = 0, panel = 0;
  float* sums = nullptr;  // [terms, panel]; depthwise [terms]
  int64_t channels = 0;   // depthwise: slots of a pixel
};

// Depthwise convolutions: gradients of weights as above, but every channel has the sums of its own
// slots of each term, and sums are [terms, channels]; panel is not used.

// Rows of the kernel that lie one below the other, and what they meet.
struct ConvColumn {
  const void* x;   // the first pixel's channels, under the first row
  const float* w;  // [taps, channels]
  int64_t taps;
};

// Pixels of one frame, whose channels are made of the same ones of x: y = bias + sum over the
// columns and their taps. x and y are f32 or bf16.
struct ConvDepthwise {
  const ConvColumn* columns = nullptr;
  int64_t count = 0;
  int64_t pixels = 0, channels = 0;
  int64_t x_step = 0, y_step = 0;  // elements from pixel to pixel
  const float* bias = nullptr;     // [channels]
  // As many pixels, one behind the other, that are read soon; anywhere, or null.
  const void* ahead = nullptr;
  void* y = nullptr;
  DType dtype = DType::f32;
};

struct ConvKernel {
  int depth;  // values in a slot: 1, floats; 2, bf16, and the call's type must be bf16
  // The panel for so many channels, of frames with so many pixels.
  int64_t (*panel)(int64_t channels, int64_t pixels);
  void (*pixels)(const ConvPixels&);
  void (*outer)(const ConvOuter&);
  // Of floats alone, also where `depth` is 2.
  void (*depthwise_pixels)(const ConvDepthwise&);
  void (*depthwise_outer)(const ConvOuter&);
};

#define RONDO_DECLARE(isa)                    \
  namespace isa {                             \
  extern const ConvKernel* const conv_kernel; \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512)
#undef RONDO_DECLARE
namespace isa_avx512bf16 {
extern const ConvKernel* const conv_bf16_kernel;  // nullptr where the compiler has none
}

}  // namespace rondo
