// The CPU variants of the LSTM ops: one driver, the kernels of one instruction set each.
#pragma once

#include "kernels/lstm/lstm_loop.h"

namespace rondo {

// The kernels for each storage dtype; nullptr: not of this variant.
struct LstmCpu {
  const LstmKernels* f32;
  const LstmKernels* bf16;
  const LstmKernels* of(DType t) const {
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

}  // namespace rondo
