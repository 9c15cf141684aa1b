// What tells GPUs apart on which the same kernels may differ in speed, or in what they may do.
#pragma once

#include <string>

namespace rondo {

class Device;

// Name (of a part of a GPU, MIG, it is the part's), architecture, multiprocessors, the clusters of
// 8 and of 16 blocks that are resident at once, driver. Of a device of kind cuda; in builds with
// CUDA. Error.
std::string gpu_identity(const Device& device);

}  // namespace rondo
