// Where the frames of a window lie, for host code and GPU kernels: of kernels/conv and
// kernels/conv2d.
#pragma once

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/base/packed.h"

namespace rondo {

// Tap k of the window of frame t is frame (t * multiply + k * step + offset) / divide, where that
// divides. Forward divide is 1; for the gradient of the input it is the stride.
struct ConvTaps {
  int32_t count = 1;
  int32_t multiply = 1, step = 1, offset = 0, divide = 1;
};

enum class ConvPart : uint8_t { none, frames, before, after };

// The frames that windows are made of. Those before a sequence and behind it: [frames, N, cols].
struct ConvSource {
  PackedView layout;
  int64_t before_frames = 0, after_frames = 0;
  const void* rows = nullptr;
  const void* before = nullptr;
  const void* after = nullptr;
};

// The frames whose windows are wanted: those of a layout, or `halo_frames` before or behind each of
// its sequences.
struct ConvTargets {
  ConvPart part = ConvPart::frames;
  PackedView layout;
  int64_t halo_frames = 0;
};

// Windows of target rows [first, first + rows), as far as they exist: [rows, taps, cols].
struct ConvWindows {
  ConvTargets targets;
  ConvSource source;
  ConvTaps taps;
  int64_t cols = 0;
  DType dtype = DType::f32;
  int64_t first = 0, rows = 0;
  void* windows = nullptr;
  int32_t* count = nullptr;  // how many rows there are, is written
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

// A row of one of a source's arrays.
struct ConvPlace {
  ConvPart part = ConvPart::none;
  int64_t row = 0;
};

RONDO_HOST_DEVICE inline int64_t conv_target_rows(const ConvTargets& t) {
  return t.part == ConvPart::frames ? t.layout.extent->rows
                                    : t.halo_frames * t.layout.capacity.sequences;
}

// How many of the rows [first, first + rows) exist.
RONDO_HOST_DEVICE inline int64_t conv_window_count(const ConvWindows& w) {
  const int64_t left = conv_target_rows(w.targets) - w.first;
  return left < 0 ? 0 : left < w.rows ? left : w.rows;
}

// Frame t of sequence n of the source.
RONDO_HOST_DEVICE inline ConvPlace conv_place(const ConvSource& s, int64_t n, int64_t t) {
  const int64_t sequences = s.layout.capacity.sequences, length = s.layout.lengths[n];
  if (t >= 0 && t < length) return {ConvPart::frames, s.layout.row_offsets[t] + n};
  if (t < 0) {
    const int64_t j = s.before_frames + t;
    return j < 0 ? ConvPlace{} : ConvPlace{ConvPart::before, j * sequences + n};
  }
  const int64_t j = t - length;
  return j < s.after_frames ? ConvPlace{ConvPart::after, j * sequences + n} : ConvPlace{};
}

// Tap k of the window of target row r.
RONDO_HOST_DEVICE inline ConvPlace conv_window_place(const ConvWindows& w, int64_t r, int64_t k) {
  const PackedView& layout = w.targets.layout;
  int64_t t, n;
  if (w.targets.part == ConvPart::frames) {
    t = layout.row_frame[r];
    n = r - layout.row_offsets[t];
  } else {
    n = r % layout.capacity.sequences;
    if (n >= layout.extent->sequences) return {};
    t = r / layout.capacity.sequences;
    t += w.targets.part == ConvPart::before ? -w.targets.halo_frames : layout.lengths[n];
  }
  const int64_t at = t * w.taps.multiply + k * w.taps.step + w.taps.offset;
  if (w.taps.divide == 1) return conv_place(w.source, n, at);
  if (at < 0 || at % w.taps.divide != 0) return {};
  return conv_place(w.source, n, at / w.taps.divide);
}

// How many of the rows [first, first + rows) exist.
RONDO_HOST_DEVICE inline int64_t conv_scatter_count(const ConvScatter& s) {
  const int64_t left = s.results_layout.extent->rows - s.first;
  return left < 0 ? 0 : left < s.rows ? left : s.rows;
}

// Where row r of the results goes; -1: nowhere.
RONDO_HOST_DEVICE inline int64_t conv_scatter_row(const ConvScatter& s, int64_t r) {
  const int64_t j = s.results_layout.row_frame[r], n = r - s.results_layout.row_offsets[j];
  const int64_t t = j * s.stride + s.frame;
  return t < s.layout.lengths[n] ? s.layout.row_offsets[t] + n : -1;
}

RONDO_HOST_DEVICE inline const void* conv_array(const ConvSource& s, ConvPart part) {
  return part == ConvPart::frames ? s.rows : part == ConvPart::before ? s.before : s.after;
}

}  // namespace rondo
