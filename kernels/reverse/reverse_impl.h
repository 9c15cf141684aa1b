// The variants of reversed frames and what they share, for their folder alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/reverse/reverse.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

void reverse_frames_ref(const Context& context, const ReverseFramesArgs& args);
void reverse_frames_cpu(const Context& context, const ReverseFramesArgs& args);
RONDO_DECLARE_GPU(reverse_frames_gpu, ReverseFramesArgs);

// Checks what reverse.h says of the arguments that the host can see.
void check_reverse_frames(const ReverseFramesArgs& args);

// The row whose frame stands at row r when its sequence is reversed.
RONDO_HOST_DEVICE inline int64_t reversed_row(const PackedView& layout, int64_t r) {
  const int64_t t = layout.row_frame[r], n = r - layout.row_offsets[t];
  return layout.row_offsets[layout.lengths[n] - 1 - t] + n;
}

}  // namespace rondo
