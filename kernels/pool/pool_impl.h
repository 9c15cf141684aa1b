// The variants of the pooling ops, for their table alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/variants.h"
#include "kernels/pool/pool.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {
RONDO_DECLARE_KERNEL(PoolArgs, pool)
RONDO_DECLARE_KERNEL(PoolGradArgs, pool_grad)
RONDO_DECLARE_GPU(pool_gpu, PoolArgs);
RONDO_DECLARE_GPU(pool_grad_gpu, PoolGradArgs);

[[gnu::always_inline]] RONDO_HOST_DEVICE inline int32_t pooled_length(const PackedView& layout,
                                                                      int64_t n) {
  return n < layout.extent->sequences ? layout.lengths[n] : 0;
}
}  // namespace rondo
