// kernels/base/cpu/simd.h behind plain functions, once per instruction set.
#pragma once

#include <cstdint>

namespace rondo {

// y[i] = f(x[i]) for n elements, n a multiple of 16 (the widest vector).
struct SimdFunctions {
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*sigmoid)(const float* x, float* y, int64_t n);
  void (*to_bf16)(const float* x, uint16_t* y, int64_t n);
  void (*from_bf16)(const uint16_t* x, float* y, int64_t n);
};

namespace isa_generic {
extern const SimdFunctions simd_functions;
}
namespace isa_avx2 {
extern const SimdFunctions simd_functions;
}
namespace isa_avx512 {
extern const SimdFunctions simd_functions;
}

}  // namespace rondo
