// The variants of pooling over images and what they share, for their folder alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/variants.h"
#include "kernels/pool2d/pool2d.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(Pool2dArgs, pool2d)
RONDO_DECLARE_KERNEL(Pool2dGradArgs, pool2d_grad)
RONDO_DECLARE_GPU(pool2d_gpu, Pool2dArgs);
RONDO_DECLARE_GPU(pool2d_grad_gpu, Pool2dGradArgs);

// Check what pool2d.h says of the arguments that the host can see.
void check_pool2d(const Pool2dArgs& args);
void check_pool2d(const Pool2dGradArgs& args);

// The frames of the windows of a row of the result: `count` from `first` on, of sequence n.
struct Pool2dFrames {
  int64_t n, first, count;
};
[[gnu::always_inline]] RONDO_HOST_DEVICE inline Pool2dFrames pool2d_frames(const PackedView& from,
                                                                           const PackedView& to,
                                                                           int32_t columns,
                                                                           int64_t row) {
  const int64_t t = to.row_frame[row], n = row - to.row_offsets[t], first = t * columns;
  const int64_t left = from.lengths[n] - first;
  return {n, first, left < columns ? left : columns};
}
}  // namespace rondo
