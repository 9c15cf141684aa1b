#include <cuda_runtime.h>

#include "kernels/base/error.h"
#include "kernels/base/gpu/cuda_check.h"
#include "kernels/base/gpu/launch.h"

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

int resident_probe_clusters(unsigned blocks) {
  LaunchConfig c;
  c.kernel = "cuda_probe";
  c.grid = {blocks};
  c.block = {128};
  c.cluster = blocks;
  c.shared_bytes = 128 * 1024;  // so that a multiprocessor takes one block
  return resident_clusters(c, reinterpret_cast<const void*>(cuda_probe));
}

}  // namespace rondo::detail
