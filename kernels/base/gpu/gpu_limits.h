// What of a GPU decides which kernels are quick on it. The values are an H200's, where nothing else
// is said.
#pragma once

#include "kernels/base/gpu/launch.h"

namespace rondo {

class Device;

struct GpuLimits {
  int architecture = 90;  // 90: sm_90
  int multiprocessors = simulated_multiprocessors;
  size_t shared_bytes = max_shared_bytes;  // that a block may ask for
};

// Those of a device of kind cuda; in builds with CUDA.
GpuLimits gpu_limits(const Device& device);

}  // namespace rondo
