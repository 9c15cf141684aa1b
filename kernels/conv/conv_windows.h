// The pieces of a convolution by windows that its driver (conv_windows.cc) has a device do beside
// the products, for host code and GPU kernels: of kernels/conv alone.
#pragma once

#include "kernels/conv/conv.h"
#include "kernels/conv/conv_places.h"

namespace rondo {

// Windows of target rows [first, first + rows), as far as they exist: [rows, taps, cols].
struct ConvWindows {
  ConvTargets targets;
  ConvSource source;
  ConvTaps taps;
  int64_t cols = 0;
  DType dtype = DType::f32;
  int64_t first = 0, rows = 0;
  void* windows = nullptr;
  int32_t* count = nullptr;  // how many rows there are is written, unless absent
};

// Results for frame j * stride + frame of every sequence, row (j, n) of the layout
// `results_layout`, go to that frame's row of `layout`, if there is one. [rows, cols], from row
// `first` of the results' layout on; results absent: zeros.
struct ConvScatter {
  PackedView results_layout, layout;
  int32_t stride = 1, frame = 0;
  int64_t cols = 0;
  DType dtype = DType::f32;
  int64_t first = 0, rows = 0;
  const void* results = nullptr;
  void* out = nullptr;
};

// to[a, b, c] (+)= from at a * strides[0] + b * strides[1] + c * strides[2]. One dtype.
struct ConvPermute {
  const void* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::f32;
  int64_t dims[3] = {}, strides[3] = {};
  bool accumulate = false;
};

struct ConvDevice {
  void (*windows)(const Context&, const ConvWindows&) = nullptr;
  void (*permute)(const Context&, const ConvPermute&) = nullptr;
  void (*scatter)(const Context&, const ConvScatter&) = nullptr;
};
void conv_with(const ConvDevice& device, const Context& context, const ConvArgs& args);
void conv_with(const ConvDevice& device, const Context& context, const ConvGradInputArgs& args);
void conv_with(const ConvDevice& device, const Context& context, const ConvGradWeightArgs& args);

// ConvDevice::windows of CPUs.
void conv_copy_windows(const Context& context, const ConvWindows& windows);

// How many of the rows [first, first + rows) exist, of `all`.
RONDO_HOST_DEVICE inline int64_t conv_count(int64_t all, int64_t first, int64_t rows) {
  const int64_t left = all - first;
  return left < 0 ? 0 : left < rows ? left : rows;
}
RONDO_HOST_DEVICE inline int64_t conv_window_count(const ConvWindows& w) {
  return conv_count(conv_target_rows(w.targets), w.first, w.rows);
}
RONDO_HOST_DEVICE inline int64_t conv_scatter_count(const ConvScatter& s) {
  return conv_count(s.results_layout.extent->rows, s.first, s.rows);
}

// Tap k of the window of target row r.
RONDO_HOST_DEVICE inline ConvPlace conv_window_place(const ConvWindows& w, int64_t r, int64_t k) {
  int64_t n, t;
  if (!conv_target_frame(w.targets, r, &n, &t)) return {};
  const int64_t at = t * w.taps.multiply + k * w.taps.step + w.taps.offset;
  if (w.taps.divide == 1) return conv_place(w.source, n, at);
  if (at < 0 || at % w.taps.divide != 0) return {};
  return conv_place(w.source, n, at / w.taps.divide);
}

// Where row r of the results goes; -1: nowhere.
RONDO_HOST_DEVICE inline int64_t conv_scatter_row(const ConvScatter& s, int64_t r) {
  const int64_t j = s.results_layout.row_frame[r], n = r - s.results_layout.row_offsets[j];
  const int64_t t = j * s.stride + s.frame;
  return t < s.layout.lengths[n] ? s.layout.row_offsets[t] + n : -1;
}

}  // namespace rondo
