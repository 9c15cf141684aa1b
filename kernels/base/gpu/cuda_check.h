// Errors of the CUDA runtime, and the launch behind cuda::launch(). Only for files that are
// compiled when the toolkit is there.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/base/check.h"
#include "kernels/base/gpu/launch.h"
#include "kernels/base/op.h"

// Throws Error with the expression, the position and what CUDA says.
#define CUDA_CHECK(expression)                                                              \
  do {                                                                                      \
    if (const cudaError_t rondo_cuda_error = (expression); rondo_cuda_error != cudaSuccess) \
        [[unlikely]]                                                                        \
      ::rondo::detail::fail_check(#expression, std::source_location::current(),             \
                                  ::rondo::detail::describe_cuda_error(rondo_cuda_error));  \
  } while (false)

namespace rondo::detail {

std::string describe_cuda_error(cudaError_t error);

// Whether this program was compiled for the GPU that is current.
bool has_code_for_current_gpu();

// Raises the kernel's limit of dynamic shared memory when it needs more than 48 KB, and allows
// cluster sizes above 8.
void launch_cuda(const Context& context, const LaunchConfig& config, const void* kernel,
                 void** arguments);

// How many clusters, or blocks, of such a launch the current device holds at once; 0 when the
// kernel was not compiled for it, the device cannot run that shape, or there is no device.
int resident_clusters(const LaunchConfig& config, const void* kernel);
int resident_blocks(const LaunchConfig& config, const void* kernel);
// The first of these for clusters of so many blocks, of which a multiprocessor holds one.
int resident_probe_clusters(unsigned blocks);

}  // namespace rondo::detail
