#include <cuda_runtime.h>

#include "kernels/base/error.h"
#include "kernels/base/gpu/cuda_check.h"

namespace rondo::detail {

__global__ void cuda_probe() {}

bool has_code_for_current_gpu() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, cuda_probe);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    (void)cudaGetLastError();  // not sticky: answered here
    return false;
  }
  CUDA_CHECK(error);
  return true;
}

}  // namespace rondo::detail
