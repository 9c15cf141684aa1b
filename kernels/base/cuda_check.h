// Errors of the CUDA runtime, and the launch behind cuda::launch(). Only for files that are
// compiled when the toolkit is there.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/base/error.h"
#include "kernels/base/launch.h"
#include "kernels/base/op.h"

// Throws Error with the expression, the position and what CUDA says.
#define CUDA_CHECK(expression)                                                              \
  do {                                                                                      \
    if (const cudaError_t rondo_cuda_error = (expression); rondo_cuda_error != cudaSuccess) \
        [[unlikely]]                                                                        \
      ::rondo::detail::fail_check(#expression,                                              \
                                  ::rondo::detail::describe_cuda_error(rondo_cuda_error),   \
                                  std::source_location::current());                         \
  } while (false)

namespace rondo::detail {

std::string describe_cuda_error(cudaError_t error);

// Raises the kernel's limit of dynamic shared memory when it needs more than 48 KB, and allows
// cluster sizes above 8.
void launch_cuda(const Context& context, const LaunchConfig& config, const void* kernel,
                 void** arguments);

}  // namespace rondo::detail
