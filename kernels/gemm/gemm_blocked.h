// Between the blocked driver (gemm_blocked.cc, one for all instruction sets) and the kernels that
// are compiled per instruction set (gemm_micro.h).
//
// Packed operands are made of 32-bit units along k: one float, or a pair of bf16 (k even, k odd;
// zero past the end). A panel of `width` rows of op(a) (columns of op(b)) is stored step by step:
// width units of the first unit of k, then of the next, ... A kernel with steps of several units
// has zeros up to a whole step, and stores of a panel of op(a) the first step's units row by row,
// then the next step's.
#pragma once

#include "kernels/gemm/gemm.h"

namespace rondo {

struct GemmPack {
  const void* x = nullptr;  // first element
  DType dtype = DType::f32;
  int64_t ld = 0;
  bool k_contiguous = false;  // k runs along the rows of memory (a, or b transposed)
  int64_t count = 0;          // rows of op(a), columns of op(b)
  int64_t k = 0;              // values, not units
  float* out = nullptr;       // at least gemm_slack floats longer than the panels
};

struct GemmBlock {
  int64_t m = 0, n = 0, units = 0;
  const float* a = nullptr;  // packed by pack_a
  const float* b = nullptr;  // packed by pack_b
  void* c = nullptr;
  int64_t ldc = 0;
  DType c_dtype = DType::f32;
  float alpha = 1, beta = 0;
  const float* bias = nullptr;  // [n] or absent
};

struct GemmKernel {
  int mr, nr;  // the largest tile: panels of a are at most mr wide, those of b exactly nr
  int depth;   // values of k per unit
  int step;    // units of k that a product takes at once
  // Panels of a differ in width by one at most.
  void (*pack_a)(const GemmPack&);
  void (*pack_b)(const GemmPack&);
  // c = alpha * a b + beta * c + bias.
  void (*multiply)(const GemmBlock&);

  // Units that k values take in a panel.
  int64_t units(int64_t k) const { return (k + depth * step - 1) / (depth * step) * step; }
};

// Panels are written in whole vectors, and read in whole tiles of 16 rows of 16 units.
constexpr int64_t gemm_slack = 256;

// nullptr where the compiler does not know the instruction set.
#define RONDO_DECLARE(isa)                        \
  namespace isa {                                 \
  extern const GemmKernel* const gemm_f32_kernel; \
  }
RONDO_DECLARE(isa_generic)
RONDO_DECLARE(isa_avx2)
RONDO_DECLARE(isa_avx512)
#undef RONDO_DECLARE
namespace isa_avx512bf16 {
extern const GemmKernel* const gemm_bf16_kernel;
}
namespace isa_amx {
extern const GemmKernel* const gemm_amx_kernel;
}

// Runs f32 or bf16 inputs through `kernel`.
void gemm_blocked(const Context& context, const GemmArgs& args, const GemmKernel& kernel);
size_t gemm_blocked_workspace(const Context& context, const GemmArgs& args,
                              const GemmKernel& kernel);

}  // namespace rondo
