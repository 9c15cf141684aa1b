// GPUs. Declared always, defined only in builds with CUDA (RONDO_WITH_CUDA).
#pragma once

#include <string>

#include "kernels/base/device.h"

namespace rondo {

// The GPU of that index, or nullptr with the reason in *why (no driver, no such device, no kernels
// for it). The device lives as long as the process.
//
// On it: allocate and deallocate synchronise (cudaMalloc, cudaFree): do both outside the step loop.
// Streams are non-blocking. A sticky fault of a kernel shows at the next synchronize().
Device* cuda_device(int index, std::string* why);

// How many GPUs this process sees; 0 with the reason in *why. None of them is opened.
int cuda_device_count(std::string* why);

}  // namespace rondo
