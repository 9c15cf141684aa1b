// The variants of gemm and what they share, for its folder alone.
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// m, n, k of this call, after row_count.
struct GemmExtent {
  int64_t m, n, k;
};

// Checks what gemm.h says of the arguments that the host can see.
void check_gemm(const GemmArgs& args);
// The same, and reads row_count.
GemmExtent gemm_extent(const GemmArgs& args);

void gemm_ref(const Context& context, const GemmArgs& args);

bool gemm_openblas_accepts(const Context& context, const void* args);
void gemm_openblas(const Context& context, const GemmArgs& args);

RONDO_DECLARE_GPU(gemm_gpu, GemmArgs);
// GPUs take f32 and bf16.
inline bool gemm_gpu_accepts(const Context&, const void* args) {
  return !args || static_cast<const GemmArgs*>(args)->dtype != DType::f64;
}

}  // namespace rondo
