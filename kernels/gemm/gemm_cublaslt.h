// Products by NVIDIA's cuBLASLt, for its variant and its test.
#pragma once

#include "kernels/gemm/cublaslt_library.h"
#include "kernels/gemm/gemm_impl.h"

namespace rondo {

// The kernels of our own that it calls: cuda's, or in tests sim's.
struct GemmCublasLtKernels {
  void (*portable)(const Context&, const GemmArgs&);
  void (*zero_tail)(const Context&, const GemmTailArgs&);
  void (*add_bias)(const Context&, const GemmBiasArgs&);
};

// Chooses an algorithm when it sees a shape for the first time; shapes it has seen allocate
// nothing. What cuBLASLt does not take goes to the portable kernel. Needs GemmArgs::spare_rows when
// there is a row_count.
void gemm_by_cublaslt(const CublasLt& library, const GemmCublasLtKernels& kernels,
                      const Context& context, const GemmArgs& args);

}  // namespace rondo
