// The variants of gemm and what they share, for its folder alone.
#pragma once

#include "kernels/gemm/gemm.h"

namespace rondo {

// m, n, k of this call, after row_count.
struct GemmExtent {
  int64_t m, n, k;
};

// Checks the contract of gemm.h and reads row_count.
GemmExtent gemm_extent(const GemmArgs& args);

void gemm_ref(const Context& context, const GemmArgs& args);

bool gemm_openblas_accepts(const Context& context, const void* args);
void gemm_openblas(const Context& context, const GemmArgs& args);

}  // namespace rondo
