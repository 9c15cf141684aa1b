// The CPU variants of the LSTM ops: one driver, the kernels of one instruction set each.
#pragma once

#include "kernels/base/carver.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lstm/lstm_loop.h"

namespace rondo {

// The kernels for each storage dtype; nullptr: not of this variant.
struct LstmCpu {
  const LstmKernels* f32;
  const LstmKernels* bf16;
  const LstmKernels* int8;  // of f32, forward
  const LstmKernels* of(DType t, const LstmDims& dims) const {
    if (dims.int8) return int8;
    return t == DType::f32 ? f32 : t == DType::bf16 ? bf16 : nullptr;
  }
};

void lstm_forward_cpu(const LstmCpu& cpu, const Context& context, const LstmForwardArgs& args);
void lstm_backward_cpu(const LstmCpu& cpu, const Context& context, const LstmBackwardArgs& args);
void lstm_weight_grad_cpu(const LstmCpu& cpu, const Context& context,
                          const LstmWeightGradArgs& args);

// As lstm_workspace_bytes(), for Backend::cpu.
size_t lstm_cpu_workspace_bytes(const Context& context, LstmPhase phase, const LstmDims& dims,
                                DType compute, const PackedCapacity& capacity);

size_t lstm_weight_grad_workspace_bytes(const Context& context, const LstmDims& dims, DType compute,
                                        const PackedCapacity& capacity);

// ---- shared by the driver's files ----

inline void lstm_check_workspace(const TensorView& workspace, size_t needed) {
  RONDO_CHECK(needed == 0 || (workspace && workspace.bytes() >= needed), "lstm: workspace of ",
              workspace ? workspace.bytes() : 0, " bytes, needed ", needed);
  RONDO_CHECK(reinterpret_cast<uintptr_t>(workspace.data) % 64 == 0,
              "lstm: workspace is not aligned to 64 bytes");
}

inline const char* lstm_at(const TensorView& v, int64_t element) {
  return v ? static_cast<const char*>(v.data) + element * static_cast<int64_t>(size_of(v.dtype))
           : nullptr;
}
inline char* lstm_at_mutable(const TensorView& v, int64_t element) {
  return const_cast<char*>(lstm_at(v, element));
}

inline GemmArgs lstm_product(int64_t m, int64_t n, int64_t k, DType dtype, DType c_dtype) {
  GemmArgs g;
  g.m = m, g.n = n, g.k = k;
  g.dtype = dtype, g.c_dtype = c_dtype;
  return g;
}

template <class Space>
void lstm_set_gemm_workspace(GemmArgs& g, const Space& space) {
  g.workspace = {space.gemm, DType::u8, {static_cast<int64_t>(space.gemm_bytes)}};
}

}  // namespace rondo
