// Where the frames that a frame is made of lie, for host code and GPU kernels: of kernels/conv
// alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/packed.h"
#include "kernels/base/tensor.h"

namespace rondo {

// Tap k of the window of position t is position (t * multiply + k * step + offset) / divide, where
// that divides. Forward divide is 1; for the gradient of the input it is the stride.
struct ConvTaps {
  int32_t count = 1;
  int32_t multiply = 1, step = 1, offset = 0, divide = 1;
};

enum class ConvPart : uint8_t { none, frames, before, after };

// The frames that others are made of. Those before a sequence and behind it: [frames, N, cols].
struct ConvSource {
  PackedView layout;
  int64_t before_frames = 0, after_frames = 0;
  const void* rows = nullptr;
  const void* before = nullptr;
  const void* after = nullptr;
};
inline ConvSource conv_source(const PackedView& layout, const TensorView& rows,
                              const TensorView& before = {}, const TensorView& after = {}) {
  return {layout,    before ? before.dim(0) : 0, after ? after.dim(0) : 0, rows.data, before.data,
          after.data};
}

// The frames that are wanted: those of a layout, or `halo_frames` before or behind each of its
// sequences.
struct ConvTargets {
  ConvPart part = ConvPart::frames;
  PackedView layout;
  int64_t halo_frames = 0;

  // The most rows that there are of them.
  int64_t capacity() const {
    return part == ConvPart::frames ? layout.capacity.rows
                                    : halo_frames * layout.capacity.sequences;
  }
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

// Frame and sequence of a row of the targets; false: the batch does not have the sequence.
RONDO_HOST_DEVICE inline bool conv_target_frame(const ConvTargets& targets, int64_t row, int64_t* n,
                                                int64_t* t) {
  const PackedView& layout = targets.layout;
  if (targets.part == ConvPart::frames) {
    *t = layout.row_frame[row];
    *n = row - layout.row_offsets[*t];
    return true;
  }
  *n = row % layout.capacity.sequences;
  if (*n >= layout.extent->sequences) return false;
  *t = row / layout.capacity.sequences;
  *t += targets.part == ConvPart::before ? -targets.halo_frames : layout.lengths[*n];
  return true;
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

RONDO_HOST_DEVICE inline const void* conv_array(const ConvSource& s, ConvPart part) {
  return part == ConvPart::frames ? s.rows : part == ConvPart::before ? s.before : s.after;
}

}  // namespace rondo
