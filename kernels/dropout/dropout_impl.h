// The variants of dropout, for its table alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/variants.h"
#include "kernels/dropout/dropout.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(DropoutArgs, dropout)
RONDO_DECLARE_GPU(dropout_gpu, DropoutArgs);

// Checks p, and that frames are whole pixels.
void check_dropout(const DropoutArgs& args);

// Columns whose random numbers differ; so many times they are used in a row.
inline int64_t dropout_columns(const DropoutArgs& a) {
  return a.channels > 0 ? a.channels : a.x.dim(1);
}
inline int64_t dropout_pixels(const DropoutArgs& a) {
  return a.channels > 0 ? a.x.dim(1) / a.channels : 1;
}

struct DropoutRow {
  uint64_t utterance;
  uint32_t frame;  // absolute; 0 where all frames are dropped alike
};

[[gnu::always_inline]] RONDO_HOST_DEVICE inline DropoutRow dropout_row(const PackedView& layout,
                                                                       int64_t channels,
                                                                       int64_t r) {
  if (layout.row_frame == nullptr) return {layout.keys[r], 0};
  const int32_t t = layout.row_frame[r];
  const int64_t n = r - layout.row_offsets[t];
  return {layout.keys[n], channels > 0 ? 0 : static_cast<uint32_t>(layout.first_frame[n] + t)};
}

[[gnu::always_inline]] RONDO_HOST_DEVICE inline int64_t dropout_rows(const PackedView& layout) {
  return layout.row_frame == nullptr ? layout.extent->sequences : layout.extent->rows;
}
}  // namespace rondo
